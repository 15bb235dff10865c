// Marks the app when its first picture is complete: until then, everything below it is hidden (styles.css).

let isWatching = false;

export function markFirstPicture(app) {
  if ("painted" in app.dataset || isWatching) return;
  isWatching = true;
  const check = () => {
    if (!isComplete(app)) requestAnimationFrame(check);
    else requestAnimationFrame(() => { app.dataset.painted = ""; }); // after layout
  };
  check();
}

// Whether the script has ended, all components have loaded, and every figure is painted.
function isComplete(app) {
  if (app.dataset.testScriptState !== "notRunning") return false;
  if (app.querySelector(".stMain [data-testid=stSkeleton]")) return false;
  const components = [...app.querySelectorAll(".stMain .stBidiComponent")];
  if (components.some((component) => !component.querySelector("[data-testid=stBidiComponentRegular] > div > div > *"))) return false;
  const figures = [...app.querySelectorAll(".figures")];
  return figures.every(({ figureState }) => figureState?.painted && figureState.painted === figureState.figures);
}
