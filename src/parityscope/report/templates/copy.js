// Adds to every page a button that copies a command or the lines of an advice.
"use strict";
(() => {
  for (const box of document.querySelectorAll(".command")) {
    const button = Object.assign(document.createElement("button"), { textContent: "Copy", className: "copy" });
    button.type = "button";
    button.addEventListener("click", () => {
      const code = box.querySelector("code");
      const done = () => {
        button.textContent = "Copied";
        setTimeout(() => (button.textContent = "Copy"), 1500);
      };
      const select = () => {
        getSelection().selectAllChildren(code);
        button.textContent = "Selected";
      };
      if (navigator.clipboard) navigator.clipboard.writeText(code.textContent).then(done, select);
      else select();
    });
    box.append(button);
  }
})();
