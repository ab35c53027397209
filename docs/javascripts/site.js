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
});
