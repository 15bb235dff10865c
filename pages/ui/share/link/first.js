// Says when the first picture is there: until then what stands under it is hidden (styles.css).

export function firstPicture(app) {
  if ("painted" in app.dataset || app.waits) return;
  app.waits = true;
  const look = () => {
    const figures = [...app.querySelectorAll(".figures")];
    const empty = [...app.querySelectorAll(".stMain .stBidiComponent")].some((component) => !component.querySelector(".figures, .links, [hidden]"));
    const waits = empty || app.dataset.testScriptState !== "notRunning" || app.querySelector(".stMain [data-testid=stSkeleton]");
    const there = !waits && figures.every((root) => root.painted && root.painted === root.figures);
    if (there) requestAnimationFrame(() => { app.dataset.painted = ""; }); // when they have taken their place
    else requestAnimationFrame(look);
  };
  look();
}
