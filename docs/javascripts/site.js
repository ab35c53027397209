/* What the theme leaves out for readers with a keyboard or a screen reader. */
document.addEventListener("DOMContentLoaded", () => {
  const wide = ".md-typeset__scrollwrap, .md-typeset pre > code";
  for (const part of document.querySelectorAll(wide)) {
    part.tabIndex = 0;
  }
  const search = document.querySelector(".md-search[role=dialog]");
  search?.setAttribute("aria-label", "Search");
  const sections = document.querySelectorAll("nav[aria-labelledby]");
  sections.forEach((section, number) => {
    const label = document.getElementById(
      section.getAttribute("aria-labelledby")
    );
    const name = label?.textContent.trim() || "Pages";
    section.removeAttribute("aria-labelledby");
    section.setAttribute("aria-label", `${name}, section ${number + 1}`);
  });
  // The theme adds these later, one to each block of code: no landmarks.
  const mend = () => {
    for (const part of document.querySelectorAll("nav.md-code__nav")) {
      part.setAttribute("role", "none");
    }
  };
  mend();
  new MutationObserver(mend).observe(document.body, {
    childList: true,
    subtree: true,
  });
});
