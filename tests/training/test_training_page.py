"""The page Training, and a tiny model as the source of other pages."""

import pytest
from conftest import set_knobs, state_of_address, texts_of
from test_pages import drawn, opened, said

from attention import Intervention
from attention.training import Plan, Trained, train, training_views
from attention.training.jobs import get_film
from pages.ui.training.film import Player

SHORT = {"train_task": "copy", "train_copy_offset": "3"}


def steps(app):
    """The training steps in the subtitles of the maps."""
    titles = [
        drawing["layout"]["title"]["subtitle"]["text"] for drawing in drawn(app) if drawing["layout"]["meta"]["step"]
    ]
    return {part for title in titles for part in title.replace("<br>", " · ").split(" · ") if part.startswith("step ")}


def pressed(app, label):
    next(button for button in app.button if button.label.startswith(label)).click()
    return app.run()


def test_training_page_trains_plays_stops_and_scrubs():
    app = opened("pages/training.py", **SHORT)
    assert not app.exception
    assert steps(app) == {"step 0"}
    assert app.select_slider(key="train_moves").disabled
    app = pressed(app, "Train")
    film = get_film(Plan("copy", turned=(("offset", 3),))).wait()
    app.run()
    app = pressed(app, "Stop")
    position = app.select_slider(key="train_scrub").value
    assert 0 < position < 100
    assert steps(app) == {f"step {position}"}
    assert state_of_address(app)["train_at"] == str(position)
    app = app.select_slider(key="train_scrub").set_value(100).run()
    assert steps(app) == {"step 100"}
    assert state_of_address(app)["train_at"] == "100"
    assert any("13 of 13 correct" in markdown.value for markdown in app.markdown)
    weights = next(drawing for drawing in drawn(app) if drawing["layout"]["meta"]["step"] == "weights")
    assert weights["data"][0]["z"].shape == (16, 16)
    assert film[-1].score > 0.99
    app = pressed(app, "Compare with: no positions")
    get_film(Plan("copy", turned=(("offset", 3),), control="no positions")).wait()
    app.run()
    assert len([drawing for drawing in drawn(app) if drawing["layout"]["meta"]["step"] == "weights"]) == 2
    app = app.selectbox(key="train_task").set_value("reverse").run()  # an untrained model
    assert steps(app) == {"step 0"}
    assert "train_at" not in state_of_address(app)


def test_film_that_ends_during_a_rerun_can_be_played_again(monkeypatch):
    """Ends a run as if the browser's next run had stopped it: what it asks for is not drawn."""
    get_film(Plan("reverse", 6), 33).wait()
    button = Player.button

    def ended_meanwhile(player):
        button(player)
        player.watched.opening = False

    monkeypatch.setattr(Player, "button", ended_meanwhile)
    app = opened("pages/training.py", train_seed="6", train_at="33")
    assert steps(app) == {"step 33"}
    labels = [button.label for button in app.button]
    assert "Play again" in labels
    assert "Stop" not in labels
    assert any(label.startswith("Open this model") for label in labels)


def test_link_trains_again_to_the_same_digits():
    get_film(Plan("reverse", 5), 33).wait()
    app = opened("pages/training.py", train_seed="5", train_at="33", train_reverse_input="abcdefghijkl")
    app.run()
    shown = next(drawing for drawing in drawn(app) if drawing["layout"]["meta"]["step"] == "weights")
    source = Trained("reverse", seed=5, at=33, text="abcdefghijkl")
    assert (shown["data"][0]["z"] == source.trace().layers[0].weights[0].numpy()).all()
    app = pressed(app, "Open this model in Explore")
    assert (texts_of(app)["source"], texts_of(app)["at"]) == ("trained", "33")  # for the page of the link
    lab = opened("app.py", source="trained", seed="5", at="33", input="abcdefghijkl")
    assert not lab.exception
    weights = next(drawing for drawing in drawn(lab) if drawing["layout"]["meta"]["step"] == "weights")
    assert (weights["data"][0]["z"] == shown["data"][0]["z"]).all()


@pytest.mark.parametrize(
    "bad", [{"train_reverse_input": "<b>$x$"}, {"train_task": "dates", "train_dates_input": "9/10/2024"}]
)
def test_unreadable_text_gets_one_sentence(bad):
    app = opened("pages/training.py", **bad)
    assert not app.exception
    assert "got" in said(app)


@pytest.mark.sample(2)
@pytest.mark.parametrize("page", ["pages/heads.py", "app.py?explore_mask=true", "app.py?compare=1"])
def test_every_page_shows_a_trained_model(page):
    app = opened(page, source="trained", task="copy", steps="20", layer="0", interventions="0.0.zero")
    assert not app.exception
    assert not app.error
    assert drawn(app)


def test_task_seed_and_step_are_changed_in_the_lab():
    def weights(app):
        return next(drawing for drawing in drawn(app) if drawing["layout"]["meta"]["step"] == "weights")["data"][0]["z"]

    app = opened("app.py", source="trained", task="copy", steps="50")
    assert app.number_input(key="steps").placeholder == "100"
    app = set_knobs(app, seed=3)
    assert state_of_address(app)["seed"] == "3"
    assert (weights(app) == Trained("copy", 3, 50).trace().layers[0].weights[0].numpy()).all()
    assert app.number_input(key="at").step == Plan("copy", steps=50).every == 2
    app = app.number_input(key="at").set_value(20).run()
    assert (weights(app) == Trained("copy", 3, 50, at=20).trace().layers[0].weights[0].numpy()).all()
    app = app.selectbox(key="task").set_value("lookup").run()
    assert (weights(app) == Trained("lookup", 3, 50, at=20).trace().layers[0].weights[0].numpy()).all()
    assert not app.exception


@pytest.mark.long  # trains two models
def test_trained_model_is_patched_from_its_comparison_state():
    learned = {"source": "trained", "task": "induction", "steps": "40", "layer": "1"}
    app = opened("app.py", **learned, at="3", compare="at=40&interventions=0.0.takeZ", step="key")
    assert not app.exception
    comparison = Trained("induction", steps=40, at=3)
    taken = Trained(
        "induction", steps=40, at=40, interventions=(Intervention(0, 0, patch="head_output"),), other=comparison
    )
    a, b, difference = [drawing["data"][0]["z"] for drawing in drawn(app)][:3]
    assert (a == comparison.trace().layers[1].matrix("key").numpy()).all()
    assert (b == taken.trace().layers[1].matrix("key").numpy()).all()
    assert (difference == b - a).all()
    itself = opened("app.py", **learned, at="3", compare="interventions=0.0.takeZ&frozen=true", step="key")
    assert not [drawing["data"][0]["z"] for drawing in drawn(itself)][2].any()
    lab = opened("app.py", **learned, interventions="0.0.takeV", other="a compare c d e f g h i j k l m")
    assert not lab.exception
    assert not lab.error
    assert lab.checkbox(key="frozen_switch").label.startswith("Freeze the attention of later layers")
    short = opened("app.py", **learned, interventions="0.0.takeV", other="a b c")
    assert "needs the same number of tokens in both states; the other has 6, this one 26" in said(short)


@pytest.mark.long  # trains the largest task
def test_training_page_draws_a_word_over_the_picture():
    def over(app):
        return [drawing for drawing in drawn(app) if "grid" in drawing["layout"]["meta"]]

    get_film(Plan("shapes", steps=0)).wait()
    text = "red ring 3,3; blue square 1,4"
    app = opened(
        "pages/training.py", train_task="shapes", train_at="200", train_shapes_input=text, train_shapes_query="5"
    )
    app = app.run()
    assert not app.exception
    assert app.selectbox(key="train_shapes_query").options == ["Over the picture: square", "Over the picture: ring"]
    (picture,) = over(app)
    weights = Trained("shapes", text=text).trace().layers[0].weights[0]
    places = picture["layout"]["meta"]["grid"]["positions"]
    assert places.max() == 30
    assert (picture["data"][0]["z"][places >= 0] == weights[5].numpy()[places[places >= 0]]).all()
    at = picture["layout"]["meta"]["chosen"]
    assert places[at[0], at[1]] == 6 + 3 * 5 + 3 == int(weights[5].argmax())
    app = app.selectbox(key="train_shapes_query").set_value(1).run()
    assert "query 1 square" in over(app)[0]["layout"]["title"]["subtitle"]["text"]
    app = pressed(app, "Compare with: grey pictures")
    get_film(Plan("shapes", control="grey pictures")).wait()
    app = app.run()
    pictures = over(app)
    assert len(pictures) == 2
    assert ["grid" in drawing["layout"]["meta"] for drawing in drawn(app)] == [True, True, False, False, False]
    sources = [picture["layout"]["images"][0]["source"] for picture in pictures]
    assert sources[0] != sources[1], "the control sees grey"
    app = pressed(app, "Open this model in Explore")
    assert (texts_of(app)["task"], texts_of(app)["q"]) == ("shapes", "1")
    app = app.text_input(key="train_shapes_input").set_value("green cross 0,0").run()
    assert app.selectbox(key="train_shapes_query").value == 4, "a word that is in the picture"
    assert not opened("pages/training.py", train_task="shapes", train_shapes_query="99").exception


def test_curves_and_seeds_report_what_was_reached():
    plan = Plan("reverse", steps=20)
    snapshots = list(train("reverse", steps=20))
    curves = training_views.curves({"Reverse": snapshots}, 20, 10)
    assert curves["data"][0]["x"] == list(range(11))
    assert "up to step 10 of 20" in curves["layout"]["meta"]["alt"]
    figure = training_views.seeds([plan, plan], [snapshots[0], snapshots[-1]], plan.example(""))
    assert [note["text"][:6] for note in figure["layout"]["annotations"]] == ["seed 0"] * 2
    said_of = training_views.answers(plan, snapshots[-1], plan.example(""))
    expected = reversed("transformers")
    assert [right for _, right in said_of] == [
        said == letter for (said, _), letter in zip(said_of, expected, strict=True)
    ]
    assert all(len(said) == 1 and said.islower() for said, _ in said_of)
