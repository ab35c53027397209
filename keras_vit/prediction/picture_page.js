// What the pages share on which a picture is dropped: where it is taken, and
// how its classes are shown. Each has a script of its own behind this one.
const find = (name) => document.querySelector(`[data-${name}]`);
const percent = new Intl.NumberFormat("en",
  { style: "percent", minimumFractionDigits: 1, maximumFractionDigits: 1 });

function tell(text) {
  find("status").textContent = text;
}

function fail(error) {
  tell("");
  find("problem").textContent = error.message;
}

const plain = new Intl.NumberFormat("en", { maximumSignificantDigits: 6 });

function row([name, value], isNumber) {
  const item = document.createElement("li");
  item.className = "bar";
  item.style.setProperty("--share", isNumber ? "0%" : `${100 * value}%`);
  const shown = (isNumber ? plain : percent).format(value);
  const texts = [name, shown].map((text) => {
    const span = document.createElement("span");
    span.textContent = text;
    return span;
  });
  item.append(texts[0], " ", texts[1]);
  return item;
}

// A picture, and [name, probability] of classes, or [name, number].
function show(picture, classes, areNumbers = false) {
  const image = find("picture");
  URL.revokeObjectURL(image.src);
  image.src = URL.createObjectURL(picture);
  image.alt = `Your picture, ${picture.name}`;
  find("name").textContent = picture.name;
  find("guesses").replaceChildren(
    ...classes.map((found) => row(found, areNumbers)));
  find("classes").hidden = false;
}

// Calls a function of each picture that is chosen or dropped.
function takePictures(classify) {
  const drop = find("drop"), file = find("file");
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
}
