// Sends a picture to the server that the page came from and shows its answer.
// Addresses are relative, so that it works behind a prefix as well.
(() => {
  const view = find("view");
  let explains = false, running = null, views = [];

  // What the server answers, or an error that says why it does not.
  async function ask(address, options) {
    let answer;
    try {
      answer = await fetch(address, options);
    } catch (error) {
      if (error.name === "AbortError") throw error;
      throw new Error("The server does not answer. Is it still running?");
    }
    const content = await answer.json().catch(() => null);
    if (answer.ok && content) return content;
    const reason = content?.error?.message ?? `It answered ${answer.status}.`;
    throw new Error(`${reason}`);
  }

  function describe(about) {
    explains = about.explains;
    const [height, width] = about.image_size;
    find("about").textContent = `${about.model}: ${about.num_classes} classes, ` +
      `pictures of ${width}x${height} pixels.`;
    document.title = `Classify a picture – ${about.model}`;
  }

  function showView() {
    const [name, picture] = views[view.value];
    const map = find("map");
    map.src = picture.source;
    map.alt = `${name}, over the picture as the model sees it`;
    map.classList.toggle("small", picture.small);
    find("caption").textContent = view.value === "0"
      ? `${name}: bright where the answer comes from, through all layers`
      : name;
  }

  function showAttention(explained) {
    views = [
      ["Attention rollout", explained.overlay],
      ...explained.layers.map((picture, i) => [`Attention of layer ${i}`, picture]),
      ["As the model sees it", explained.picture],
    ];
    view.replaceChildren(...views.map(([name], i) => new Option(name, i)));
    showView();
    find("attention").hidden = false;
  }

  async function classify(picture) {
    running?.abort();
    const mine = running = new AbortController();
    const options = {
      method: "POST",
      body: picture,
      headers: { "Content-Type": "application/octet-stream" },
      signal: mine.signal,
    };
    find("problem").textContent = "";
    for (const part of ["classes", "attention"]) find(part).hidden = true;
    try {
      tell(`Classifying ${picture.name} …`);
      const { predictions } = await ask("predict", options);
      const { classes } = predictions[0];
      show(picture, classes.map((found) =>
        [found.class, found.probability ?? found.number]), "number" in classes[0]);
      if (explains) {
        tell("Looking at the attention …");
        showAttention(await ask("explain", options));
      }
      tell(`${picture.name} is classified.`);
    } catch (error) {
      if (error.name === "AbortError") return; // Another picture took its place.
      fail(error);
    }
  }

  takePictures(classify);
  view.addEventListener("change", showView);
  ask("model").then(describe).catch((error) => {
    find("problem").textContent = error.message;
  });
})();
