"use strict";
// Sends a picture to the server that the page came from and shows its answer.
// Addresses are relative, so that it works behind a prefix as well.
(() => {
  const find = (name) => document.querySelector(`[data-${name}]`);
  const drop = find("drop"), file = find("file"), view = find("view");
  const percent = new Intl.NumberFormat("en",
    { style: "percent", minimumFractionDigits: 1, maximumFractionDigits: 1 });
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

  function row({ class: name, probability }) {
    const item = document.createElement("li");
    item.className = "bar";
    item.style.setProperty("--share", `${100 * probability}%`);
    const texts = [name, percent.format(probability)].map((text) => {
      const span = document.createElement("span");
      span.textContent = text;
      return span;
    });
    item.append(texts[0], " ", texts[1]);
    return item;
  }

  function showClasses(classes) {
    find("guesses").replaceChildren(...classes.map(row));
    find("classes").hidden = false;
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

  function showPicture(picture) {
    const image = find("picture");
    URL.revokeObjectURL(image.src);
    image.src = URL.createObjectURL(picture);
    image.alt = `Your picture, ${picture.name}`;
    find("name").textContent = picture.name;
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
    const tell = (text) => { find("status").textContent = text; };
    find("problem").textContent = "";
    for (const part of ["classes", "attention"]) find(part).hidden = true;
    try {
      tell(`Classifying ${picture.name} …`);
      const { predictions } = await ask("predict", options);
      showPicture(picture);
      showClasses(predictions[0].classes);
      if (explains) {
        tell("Looking at the attention …");
        showAttention(await ask("explain", options));
      }
      tell(`${picture.name} is classified.`);
    } catch (error) {
      if (error.name === "AbortError") return; // Another picture took its place.
      tell("");
      find("problem").textContent = error.message;
    }
  }

  file.addEventListener("change", () => {
    if (file.files.length) classify(file.files[0]);
    file.value = ""; // The same picture may be chosen again.
  });
  for (const kind of ["dragenter", "dragover"]) {
    drop.addEventListener(kind, (event) => {
      event.preventDefault();
      drop.classList.add("over");
    });
  }
  drop.addEventListener("dragleave", () => drop.classList.remove("over"));
  // Beside the field as well: a browser would open the picture in its place.
  document.addEventListener("dragover", (event) => event.preventDefault());
  document.addEventListener("drop", (event) => {
    event.preventDefault();
    drop.classList.remove("over");
    const [picture] = event.dataTransfer.files;
    if (picture) classify(picture);
  });
  view.addEventListener("change", showView);
  ask("model").then(describe).catch((error) => {
    find("problem").textContent = error.message;
  });
})();
