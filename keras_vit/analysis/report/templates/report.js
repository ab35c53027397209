"use strict";
// Switches the attention maps of the page. What it needs stands in the page: a
// photograph, the rollout and the maps of all layers and heads as grey pictures.
(async () => {
  const viewer = document.querySelector("[data-viewer]");
  if (!viewer) return;
  const size = (name) => Number(viewer.dataset[name]);
  const [layers, heads, rows, columns] =
    ["layers", "heads", "rows", "columns"].map(size);
  const find = (name, inside = viewer) => inside.querySelector(`[data-${name}]`);
  const layer = find("layer"), head = find("head"), paint = find("paint");
  const kind = (value) => viewer.querySelector(`[name=map][value=${value}]`);
  const buttons = [...viewer.querySelectorAll("[data-choose]")];
  // Dark to light, as matplotlib's inferno.
  const STOPS = [[0, 0, 4], [87, 16, 110], [188, 55, 84], [249, 142, 9], [252, 255, 164]];
  const PAINTS = {
    dark: (value) => [0, 0, 0, 255 - value],
    colour: (value) => {
      const place = (value / 255) * (STOPS.length - 1);
      const low = Math.min(Math.floor(place), STOPS.length - 2);
      const mixed = STOPS[low].map((c, i) => c + (STOPS[low + 1][i] - c) * (place - low));
      return [...mixed, 150];
    },
    none: () => [0, 0, 0, 0],
  };

  // The bytes of a grey picture, and their number in a row.
  async function grey(image) {
    await image.decode();
    const canvas = document.createElement("canvas");
    canvas.width = image.naturalWidth;
    canvas.height = image.naturalHeight;
    const context = canvas.getContext("2d", { willReadFrequently: true });
    context.drawImage(image, 0, 0);
    const { data, width } = context.getImageData(0, 0, canvas.width, canvas.height);
    return { width, at: (row, column) => data[4 * (row * width + column)] };
  }

  async function prepare(article, number) {
    const [rollout, maps] = await Promise.all(
      ["rollout", "maps"].map((name) => grey(find(name, article))));
    const stage = find("stage", article), overview = find("overview", article);
    const map = document.createElement("canvas");
    const still = find("rollout", article);
    map.className = "map";
    map.style.cssText = still.style.cssText;
    map.width = columns;
    map.height = rows;
    map.setAttribute("role", "img");
    map.setAttribute("aria-label", still.alt);
    const photo = find("photo", article).cloneNode();
    photo.alt = "";
    stage.replaceChildren(photo, map);
    stage.tabIndex = 0;
    stage.setAttribute("role", "group");
    stage.setAttribute("aria-label", "Attention map; arrow keys change layer and head");
    const frame = document.createElement("div");
    frame.className = "chosen";
    overview.append(frame);
    overview.addEventListener("click", (event) => {
      const box = overview.getBoundingClientRect();
      const share = (at, begin, length, count) =>
        Math.max(0, Math.min(count - 1, Math.floor(((at - begin) / length) * count)));
      choose(share(event.clientY, box.top, box.height, layers),
        share(event.clientX, box.left, box.width, heads + 1));
    });
    if (buttons[number]) buttons[number].append(photo.cloneNode());
    return { article, rollout, maps, map, frame, caption: find("caption", article) };
  }

  function draw(example) {
    const single = kind("head").checked;
    const [i, j] = [Number(layer.value), Number(head.value)];
    const value = (row, column) => single
      ? example.maps.at(i * rows + row, j * columns + column)
      : example.rollout.at(row, column);
    const context = example.map.getContext("2d");
    const pixels = context.createImageData(columns, rows);
    let best = [-1, 0, 0];
    for (let row = 0; row < rows; row++) {
      for (let column = 0; column < columns; column++) {
        const found = value(row, column);
        if (found > best[0]) best = [found, row, column];
        pixels.data.set(PAINTS[paint.value](found), 4 * (row * columns + column));
      }
    }
    context.putImageData(pixels, 0, 0);
    example.map.classList.toggle("patches", find("patches").checked);
    const name = j ? `head ${j - 1}` : "mean of the heads";
    const what = single ? `Layer ${i}, ${name}` : "Attention rollout";
    example.map.setAttribute("aria-label", `${what} over the image`);
    example.caption.textContent =
      `${what}: strongest in row ${best[1]}, column ${best[2]} of ${rows}x${columns} patches`;
    example.frame.hidden = !single;
    example.frame.style.cssText =
      `top: ${(100 * i) / layers}%; left: ${(100 * j) / (heads + 1)}%;`;
    // The rollout is of all layers and heads.
    layer.disabled = head.disabled = !single;
    find("layer-name").textContent = i;
    find("head-name").textContent = j ? j - 1 : "mean";
  }

  let shown = 0;
  const examples = await Promise.all(
    [...viewer.querySelectorAll("[data-example]")].map(prepare));

  function show(number) {
    shown = number;
    examples.forEach(({ article, caption }, i) => {
      article.hidden = i !== number;
      caption.setAttribute("aria-live", i === number ? "polite" : "off");
    });
    buttons.forEach((button, i) => button.setAttribute("aria-pressed", i === number));
    draw(examples[shown]);
  }

  function choose(i, j) {
    layer.value = i;
    head.value = j;
    kind("head").checked = true;
    draw(examples[shown]);
  }

  const MOVES = {
    ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1],
  };
  viewer.addEventListener("keydown", (event) => {
    // Sliders and buttons have keys of their own.
    const inPicture = event.target.closest("[data-stage], [data-overview]");
    if (!inPicture || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key in MOVES) {
      const [down, right] = MOVES[event.key];
      choose(Number(layer.value) + down, Number(head.value) + right);
    } else if (event.key.toLowerCase() === "r") {
      kind("rollout").checked = true;
      draw(examples[shown]);
    } else return;
    event.preventDefault();
  });
  for (const slider of [layer, head]) {
    slider.addEventListener("input", () => choose(layer.value, head.value));
  }
  find("controls").addEventListener("change", () => draw(examples[shown]));
  buttons.forEach((button, i) => button.addEventListener("click", () => show(i)));
  find("controls").hidden = false;
  viewer.classList.add("live");
  show(0);
})();
