// Says when the first picture is there: until then what stands under it is hidden (styles.css).

let looking = false;

export function firstPicture(app) {
  if ("painted" in app.dataset || looking) return;
  looking = true;
  const look = () => {
    if (!there(app)) requestAnimationFrame(look);
    else requestAnimationFrame(() => { app.dataset.painted = ""; }); // when they have taken their place
  };
  look();
}

// Whether the script has ended, all components have come, and every figure is painted.
function there(app) {
  if (app.dataset.testScriptState !== "notRunning") return false;
  if (app.querySelector(".stMain [data-testid=stSkeleton]")) return false;
  const components = [...app.querySelectorAll(".stMain .stBidiComponent")];
  if (components.some((component) => !component.querySelector("[data-testid=stBidiComponentRegular] > div > div > *"))) return false;
  const figures = [...app.querySelectorAll(".figures")];
  return figures.every(({ shown }) => shown?.painted && shown.painted === shown.figures);
}
