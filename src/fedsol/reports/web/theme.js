// The theme of the page: the system's, light or dark.

function chooseTheme() {
  const button = document.getElementById("theme");
  const system = matchMedia("(prefers-color-scheme: dark)");
  const names = ["system", "light", "dark"];
  let theme = "system";
  try {
    theme = names.includes(localStorage.getItem("fedsol-theme")) ? localStorage.getItem("fedsol-theme") : theme;
  } catch {
    // a page without storage begins with the system's theme every time
  }
  const show = () => {
    document.documentElement.dataset.theme = theme === "system" ? (system.matches ? "dark" : "light") : theme;
    button.textContent = `Theme: ${theme}`;
  };
  button.addEventListener("click", () => {
    theme = names[(names.indexOf(theme) + 1) % names.length];
    try {
      localStorage.setItem("fedsol-theme", theme);
    } catch {
      // as above
    }
    show();
  });
  system.addEventListener("change", show);
  show();
}
