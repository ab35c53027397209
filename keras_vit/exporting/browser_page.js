// Classifies pictures by an ONNX file in the browser. Resizing is that of
// keras_vit/prediction/images.py, in float32 as there: a canvas's own differs.
(() => {
  const model = JSON.parse(find("model").textContent);
  const float = Math.fround;

  // --- From a file to pixels ---

  // RGB of 8 bits, as the file is seen; transparency is dropped.
  async function decode(file) {
    const bitmap = await createImageBitmap(file,
      { premultiplyAlpha: "none", colorSpaceConversion: "none" });
    const { width, height } = bitmap;
    const canvas = new OffscreenCanvas(width, height);
    const context = canvas.getContext("2d", { willReadFrequently: true });
    context.drawImage(bitmap, 0, 0);
    const { data } = context.getImageData(0, 0, width, height);
    return toChannels(data, height, width);
  }

  function toChannels(rgba, height, width) {
    const channels = model.shape[3], data = new Float32Array(height * width * channels);
    for (let i = 0, from = 0; i < height * width; i++, from += 4) {
      const [red, green, blue] = [rgba[from], rgba[from + 1], rgba[from + 2]];
      if (channels === 1) // Pillow's luminance
        data[i] = (19595 * red + 38470 * green + 7471 * blue + 0x8000) >> 16;
      else
        [data[3 * i], data[3 * i + 1], data[3 * i + 2]] = [red, green, blue];
    }
    return { data, height, width, channels };
  }

  // --- From pixels to the size of the model ---

  const cubic = (a) => (offset) => {
    const x = Math.abs(offset);
    if (x <= 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
    return x < 2 ? a * (((x - 5) * x + 8) * x - 4) : 0;
  };
  const sinc = (x) => (x === 0 ? 1 : Math.sin(Math.PI * x) / (Math.PI * x));
  const stretched = (kernel) => (offset, stretch) => kernel(offset / stretch);
  // Method: kernel and its radius in pixels.
  const KERNELS = {
    bilinear: [stretched((x) => Math.max(0, 1 - Math.abs(x))), 1],
    bicubic: [stretched(cubic(-0.5)), 2],
    lanczos3: [stretched((x) => (Math.abs(x) < 3 ? sinc(x) * sinc(x / 3) : 0)), 3],
    area: [(offset, stretch) => Math.min(Math.max(
      (stretch + 1) / 2 - Math.abs(offset), 0), Math.min(1, stretch)), null],
    nearest: [(offset) => Number(offset > -0.5 && offset <= 0.5), null],
    box: [stretched((x) => Number(x > -0.5 && x <= 0.5)), 0.5],
    hamming: [stretched((x) => (Math.abs(x) < 1
      ? sinc(x) * (0.54 + 0.46 * Math.cos(Math.PI * x)) : 0)), 1],
  };

  // Which pixels each of `count` pixels of the result is the mean of.
  function taps(length, size, start, count) {
    const [kernel, radius] = KERNELS[model.method], scale = length / size;
    let stretch = model.antialias ? Math.max(scale, 1) : 1;
    let reach = radius * stretch;
    if (radius === null) [stretch, reach] = [scale, (scale + 1) / 2];
    const width = Math.ceil(2 * reach) + 1;
    return Array.from({ length: count }, (_, i) => {
      const centre = (start + i + 0.5) * length / size;
      const first = Math.floor(centre - reach);
      const pixels = Array.from({ length: width }, (_, k) => first + k);
      const weights = pixels.map((x) => (x >= 0 && x < length
        ? kernel(x + 0.5 - centre, stretch) : 0));
      const sum = weights.reduce((x, y) => x + y);
      return pixels.map((x, k) => [
        Math.min(Math.max(x, 0), length - 1), float(weights[k] / sum)]);
    });
  }

  // Scales one axis to `size` pixels and keeps `kept` from `start` on, which
  // may lie before it: what is not there is left at 0.
  function along(image, axis, size, start, kept) {
    const { data, height, width, channels } = image;
    const length = axis ? width : height;
    const before = Math.max(-start, 0), first = Math.max(start, 0);
    const count = Math.min(start + kept, size) - first;
    const means = length === size
      ? Array.from({ length: count }, (_, i) => [[first + i, 1]])
      : taps(length, size, first, count);
    const outer = axis ? height : 1, inner = axis ? channels : width * channels;
    const result = new Float32Array(outer * kept * inner);
    for (let block = 0; block < outer; block++)
      for (let i = 0; i < count; i++)
        for (const [pixel, weight] of means[i]) {
          const to = (block * kept + before + i) * inner;
          const from = (block * length + pixel) * inner;
          for (let j = 0; j < inner; j++)
            result[to + j] += float(data[from + j] * weight);
        }
    const [rows, columns] = axis ? [height, kept] : [kept, width];
    if (model.rounding === "nearest") result.forEach((x, i) => {
      result[i] = Math.floor(Math.min(Math.max(x, 0), 255) + 0.5);
    });
    return { data: result, height: rows, width: columns, channels };
  }

  function halfToEven(x) {
    const below = Math.floor(x);
    if (x - below !== 0.5) return Math.round(x);
    return below + Math.abs(below % 2);
  }

  // [height, width] before the crop, by the sides of an image.
  const shorterSide = (sides) => sides.map((side) =>
    Math.floor(side * model.smaller_side / Math.min(...sides)));
  const ratios = (sides) => sides.map((side, i) => side / model.before[i]);
  const before = () => model.before;
  const SIZES = {
    squash: before,
    resize_central_crop: before,
    both_sides_crop: before,
    stretch_crop: before,
    longer_side_pad: (sides) => sides.map((side) =>
      Math.floor(side * model.smaller_side / Math.max(...sides) + 0.5)),
    resize_small_central_crop: (sides) => sides.map((side) => halfToEven(
      float(side * float(model.smaller_side / Math.min(...sides))))),
    shorter_side_crop: shorterSide,
    cover_crop: (sides) => (model.before[0] === model.before[1]
      ? shorterSide(sides)
      : sides.map((side) => halfToEven(side / Math.min(...ratios(sides))))),
    contain_pad: (sides) => sides.map((side) =>
      halfToEven(side / Math.max(...ratios(sides)))),
    central_crop: (sides) => sides,
  };
  const ROUNDED = ["cover_crop", "stretch_crop", "contain_pad"];

  function middle(size, kept) {
    if (model.crop === "longer_side_pad") return 0;
    const half = (size - kept) / 2;
    if (!ROUNDED.includes(model.crop)) return Math.floor(half);
    return half < 0 ? Math.ceil(half) : halfToEven(half);
  }

  // The input of the model, from pixels in [0, 255].
  function prepare(image) {
    const kept = model.shape.slice(1, 3), channels = model.shape[3];
    const size = SIZES[model.crop]([image.height, image.width])
      .map((side) => Math.max(side, 1));
    const start = size.map((side, axis) => middle(side, kept[axis]));
    const axes = model.rounding === "nearest" ? [1, 0] : [0, 1];
    const { data } = axes.reduce((part, axis) =>
      along(part, axis, size[axis], start[axis], kept[axis]), image);
    const rounded = model.rounding === "uint8" ? Math.trunc : (x) => x;
    const outside = (i, axis) => {
      const pixel = Math.floor(i / channels);
      const place = axis ? pixel % kept[1] : Math.floor(pixel / kept[1]);
      return start[axis] + place < 0 || start[axis] + place >= size[axis];
    };
    return data
      .map((x) => rounded(Math.min(Math.max(x, 0), 255)))
      .map((x, i) => (outside(i, 0) || outside(i, 1)
        ? model.padding[i % channels % model.padding.length] : x))
      .map(scale);
  }

  function scale(x, i) {
    if (model.scaled) return x; // by the model itself
    if (!model.mean) return float(x / 127.5) - 1;
    const channel = i % model.mean.length;
    return float(float(x / 255) - float(model.mean[channel])) /
      float(model.deviation[channel]);
  }

  // --- The model ---

  async function fetched(address, integrity) {
    const absolute = new URL(address, document.baseURI).href;
    let answer;
    try {
      answer = await fetch(absolute, integrity ? { integrity } : {});
    } catch {
      throw new Error(`${absolute} cannot be fetched. A page that is opened ` +
        "as a file may fetch none: serve its folder, such as by " +
        "python -m http.server.");
    }
    if (!answer.ok) throw new Error(`${absolute}: ${answer.status}`);
    return answer;
  }

  async function load() {
    tell("Loading the model …");
    const [script, program, content] = await Promise.all([
      ...model.runtime.map(({ url, integrity }) => fetched(url, integrity)),
      fetched(model.url),
    ]);
    const type = "text/javascript";
    const code = URL.createObjectURL(new Blob([await script.text()], { type }));
    const runtime = await import(code);
    runtime.env.wasm.wasmBinary = await program.arrayBuffer();
    runtime.env.wasm.numThreads = 1; // More need headers of the server.
    const bytes = new Uint8Array(await content.arrayBuffer());
    const session = await runtime.InferenceSession.create(bytes,
      { executionProviders: ["wasm"] });
    tell("The model is loaded.");
    return { runtime, session };
  }

  const ACTIVATIONS = {
    linear: (scores) => scores,
    sigmoid: (scores) => scores.map((x) => 1 / (1 + Math.exp(-x))),
    softmax: (scores) => {
      const highest = scores.reduce((x, y) => Math.max(x, y));
      const powers = scores.map((x) => Math.exp(x - highest));
      const sum = powers.reduce((x, y) => x + y);
      return powers.map((x) => x / sum);
    },
  };

  // float32 numbers of classes by words, one row after the other; or null.
  const vectors = model.vectors ? new Float32Array(Uint8Array.from(
    atob(model.vectors), (x) => x.charCodeAt(0)).buffer) : null;

  // Cosines of an embedding and those of the words, times scale, plus bias.
  function compared(embedding) {
    const length = Math.hypot(...embedding), size = embedding.length;
    return model.classes.map((_, i) => model.bias + model.scale / length *
      embedding.reduce((sum, x, j) => sum + x * vectors[i * size + j], 0));
  }

  // [name, probability] of each class, the most probable first; or numbers.
  async function classes(image) {
    const { runtime, session } = await loaded;
    const [rows, ...shape] = model.shape, pixels = prepare(image);
    const input = new Float32Array((rows ?? 1) * pixels.length);
    input.set(pixels);
    const tensor = new runtime.Tensor("float32", input, [rows ?? 1, ...shape]);
    const { [model.output]: { data } } = await session.run({ [model.input]: tensor });
    const scores = vectors
      ? compared(Array.from(data.subarray(0, vectors.length / model.classes.length)))
      : Array.from(data.subarray(0, model.classes.length));
    const found = ACTIVATIONS[model.activation](scores);
    const named = found.map((x, i) => [model.classes[i], x]);
    return model.numbers ? named : named.sort((x, y) => y[1] - x[1]);
  }

  // --- The page ---

  let running = null; // the newest picture

  async function classify(file) {
    running = file;
    find("problem").textContent = "";
    find("classes").hidden = true;
    try {
      await loaded;
      tell(`Classifying ${file.name} …`);
      const image = await decode(file).catch(() => {
        throw new Error(`${file.name} cannot be read as a picture.`);
      });
      const begin = performance.now(), found = await classes(image);
      if (running !== file) return; // Another picture took its place.
      show(file, model.numbers ? found : found.slice(0, 5), model.numbers);
      const seconds = ((performance.now() - begin) / 1000).toFixed(2);
      tell(`${file.name} is classified, in ${seconds} s on this device.`);
    } catch (error) {
      fail(error);
    }
  }

  takePictures(classify);
  const loaded = load();
  loaded.catch(fail);
  // For pages that classify otherwise, and for tests.
  window.kerasVit = { classes, decode, model, prepare };
})();
