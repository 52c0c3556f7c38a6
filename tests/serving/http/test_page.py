"""The page: what it may load, and in Chromium what a person sees and does."""

import contextlib
import json
import math
import re
import secrets
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from fastapi import FastAPI

from exaul.kernels.metrics import wilson_interval
from exaul.serving.http.application import app, read_page
from exaul.serving.service import LATEST, Service
from tests.serving.http.apps import CONFIGURATION, EASY, answered, serving
from tests.serving.http.browser import Browser

READER, RATER, AUDITOR = "reader-token-0001", "rater-token-00001", "auditor-token-001"
HOSTILE = '<img src=x onerror="window.attacked=1"><script>window.attacked=1</script>'
SHARE = "100.0% (by the log: 100.0%), now all"  # after EASY
OVERRIDE = "\u202e"  # shows what follows from right to left


def test_the_policy_allows_this_script_and_style_only():
    page, text = read_page()
    policy = dict(part.split(" ", 1) for part in text.split("; "))
    assert "unsafe" not in text
    assert policy["require-trusted-types-for"] == "'script'"
    assert policy["default-src"] == "'none'"
    assert policy["connect-src"] == "'self'"
    for kind, tag in (("script-src", "script"), ("style-src", "style")):
        assert page.count(f"<{tag}") == 1
        assert re.fullmatch(r"'sha256-[A-Za-z0-9+/]{43}='", policy[kind])
    assert not re.search(r"\s(on\w+|style)\s*=\s*[\"']", page)  # handlers and styles in attributes are not allowed


def test_the_page_is_short_and_names_no_other_address_and_makes_no_html_from_strings():
    page, _ = read_page()
    assert len(page.splitlines()) <= 260
    assert not re.search(r"(inner|outer)HTML|insertAdjacent|document\.write|eval\(|new Function|localStorage", page)
    assert not re.search(r"https?:|[\"'`(=]//|\bsrc\b|\bhref\b|\burl\(|@import|\bimport\b", page)


def test_wilson_interval():
    # published: 0 of 10 and 81 of 263 (Newcombe 1998, method 3, and its formula)
    assert wilson_interval(0.0, 10) == pytest.approx([0, 0.2775], abs=1e-4)
    assert wilson_interval(81 / 263, 263) == pytest.approx([0.2553, 0.3662], abs=1e-4)
    assert all(limit != limit for limit in wilson_interval(float("nan"), 0))


@pytest.fixture
def serve():
    """Serve applications on free ports of this machine."""
    with contextlib.ExitStack() as stack:
        yield lambda application: f"http://127.0.0.1:{stack.enter_context(serving(application))}/"


@pytest.fixture
def browser(tmp_path):
    with Browser(tmp_path / "profile") as browser:
        yield browser
        # nothing was blocked by the policy, nothing failed, nothing came from elsewhere
        assert browser.events_of("Runtime.exceptionThrown") == []
        entries = [event["entry"] for event in browser.events_of("Log.entryAdded")]
        assert [entry for entry in entries if entry["source"] != "network"] == []  # 401 and 403 are wanted
        urls = [event["request"]["url"] for event in browser.events_of("Network.requestWillBeSent")]
        assert [url for url in urls if not url.startswith(("http://127.0.0.1:", "about:"))] == []


def shown_answer(service, key="billing", **texts):
    """Decide until an answer is shown; return its id."""
    ids = (f"chatcmpl-{secrets.token_hex(16)}" for _ in range(1000))  # as the gateway's
    decisions = (service.decide(0.9, key, id, **texts) for id in ids)
    return next(decision.id for decision in decisions if decision.answer)


def row(id):
    return f"[...document.querySelectorAll('#decisions tr')].find(row => row.textContent.includes({id!r}))"


def click(button, id):
    return f"[...{row(id)}.querySelectorAll('button')].find(each => each.textContent.includes({button!r})).click()"


def point_at(browser, id):
    browser.evaluate(f"{row(id)}.scrollIntoView({{ block: 'center' }})")
    at = browser.evaluate(f"(box => [box.x + 30, box.y + 10])({row(id)}.getBoundingClientRect())")
    browser.send("Input.dispatchMouseEvent", type="mouseMoved", x=at[0], y=at[1])


@pytest.fixture
def tokens(tmp_path):
    path = tmp_path / "tokens"
    path.touch(0o600)
    path.write_text(f"read {READER}\nread,feedback {RATER}\nread,audit {AUDITOR}\n")
    return str(path)


def enter(browser, token):
    browser.wait("document.activeElement?.id == 'token'")
    browser.send("Input.insertText", text=token)
    browser.evaluate("document.querySelector('#login button').click()")


@pytest.mark.slow
def test_rate_an_answer(tmp_path, serve, browser):
    application = app(tmp_path / "s.sqlite", alpha=0.1, keys={"billing": {"alpha": 0.05}})
    service = application.state.service
    browser.open(serve(application))
    browser.wait("document.getElementById('state').textContent == 'Live'")
    assert "/v1/decide" in browser.evaluate("document.getElementById('empty').innerText")  # says what to do first
    assert not browser.evaluate("document.getElementById('filled').checkVisibility()")
    for reason in (
        "no_score",
        "passed",
        "no_score",
    ):  # as of a gateway whose scores all fail
        service.count_undecided("", reason, "abstain" if reason == "no_score" else "answer")
    said = "Replies without a decision since the start: no_score 2 (withheld), passed 1 (shown)."
    browser.wait(f"document.getElementById('undecided').textContent == {said!r}")
    assert not browser.evaluate("document.getElementById('empty').checkVisibility()")
    assert not browser.evaluate("document.getElementById('unscored').textContent")  # two may be an accident
    service.count_undecided("", "score_failed", "abstain")
    warning = "document.getElementById('unscored').textContent"
    browser.wait(f"{warning}.startsWith('⚠ 3 of the latest 3 answers have no score')")
    assert "restart with another --score (" in browser.evaluate(warning)  # right whatever runs
    for _ in range(27):
        service.decide(0.9, "billing")
    browser.wait(f"{warning} == ''")  # of 30 a tenth
    right = shown_answer(service, question="When is it due?", text="In May.")
    wrong, foreign = shown_answer(service), shown_answer(service)
    browser.wait(f"!!({row(foreign)})")  # a live update
    assert "When is it due?" in browser.evaluate(f"{row(right)}.innerText")
    assert "● shown" in browser.evaluate(f"{row(right)}.innerText")
    label = f"{row(right)}.querySelector('button').getAttribute('aria-label')"
    assert browser.evaluate(label) == f"Right: answer {right}"
    browser.wait("document.getElementById('view').textContent == 'To rate (3)'")  # most of the others are withheld
    browser.evaluate("document.getElementById('view').click()")
    listed = "[...document.querySelectorAll('#decisions .id')].map(each => each.textContent).join()"
    browser.wait(f"{listed} == {','.join([foreign, wrong, right])!r}")
    assert browser.evaluate("document.getElementById('latest-title').textContent").startswith("To rate: 3 of the ")
    browser.evaluate("document.getElementById('view').click()")
    browser.wait("document.getElementById('latest-title').textContent == 'Latest decisions'")
    browser.wait(f"!!({row(right)})")

    browser.evaluate(click("Right", right))
    browser.wait(f"{row(right)}.innerText.includes('▲ right · counted')")
    browser.evaluate(click("Wrong", wrong))
    browser.wait(f"{row(wrong)}.innerText.includes('▼ wrong · counted')")
    figures = service.figures("billing")
    assert (figures["observed"], figures["wrong"]) == (2, 1)
    # not red: 9.5% is above its own target, which the headline names while there is no other; but one wrong is few
    cell = '<td class="wrong">50.0% of 2 (9.5% to 90.5%)</td>'
    browser.wait(f"document.querySelector('#keys .wrong').outerHTML == '{cell}'")
    target = "document.getElementById('summary').innerText.split(' of the ')[0]"
    assert browser.evaluate(target) == "Target: at most 5.0%"
    assert browser.evaluate("document.querySelector('#keys .limit').textContent") == "not audited"

    # nothing new: the service does not send the overview again
    received = len(browser.events_of("Network.responseReceived"))
    loaded = "performance.getEntriesByType('resource').length"
    browser.wait(f"{loaded} > {browser.evaluate(loaded) + 2}")
    statuses = [event["response"]["status"] for event in browser.events_of("Network.responseReceived")[received:]]
    assert 304 in statuses

    # rated elsewhere: the page has not seen it yet, since this changes nothing that it waits for
    service.change_count -= 1
    service.feedback(foreign, "up")
    browser.evaluate(click("Wrong", foreign))
    browser.wait(f"{row(foreign)}.innerText.includes('repeated')")
    assert service.figures("billing")["wrong"] == 1

    service.decide(0.9)
    browser.wait(f"{target} == 'Target of new keys: at most 10.0%'")
    cells = browser.evaluate("[...document.querySelectorAll('#keys .wrong')].map(each => each.textContent)")
    assert [cell.partition("), ")[2] for cell in cells] == ["", "target 5.0%"]

    service.begin("billing", warm_start=EASY)
    assert service.decide(1.0, "billing").answer  # so that the page hears of it
    figures = service.figures("billing")
    share = f"100.0% (by the log: {figures['expected_share']:.1%}), now scores from {figures['threshold']:.6f}"
    said = f"billing|1 since it began anew|{share}|not rated yet, target 5.0%|not audited"
    cells = "[...document.querySelectorAll('#keys tr')[1].cells].map(each => each.textContent)"
    browser.wait(f"{cells}.join('|') == {said!r}")


@pytest.mark.slow
def test_what_a_gateway_cannot_show_after_a_restart_is_not_rated_in_the_blind(tmp_path, serve, browser):
    """What the open page still shows can be rated; ``test_rate_an_answer`` rates without any texts."""
    service = Service(tmp_path / "s.sqlite", alpha=0.1, warm_start=EASY)
    service.note("score", "logprob")  # as a gateway
    lost, listed = (service.decide(0.9, id=id, question="Which?", text="This.").id for id in ("lost", "listed"))
    service.close()
    application = app(tmp_path / "s.sqlite")
    url, invitation = serve(application), "document.getElementById('newer').textContent"
    browser.open(url)
    browser.wait(f"!!({row(lost)})")
    said = "no rating: the text was in memory only, and the service has restarted since"
    assert said in browser.evaluate(f"{row(listed)}.innerText")
    assert not browser.evaluate("document.querySelector('#decisions button')")
    assert browser.evaluate(invitation) == ""
    new = shown_answer(application.state.service, "", question="When?", text="In May.")
    browser.wait(f"{invitation} == 'Rate the answers that were shown.'")
    assert browser.evaluate("document.querySelectorAll('#decisions button').length") == 2
    restarted = "row => updateDecision(row, { ...latest.find(each => each.id == ID), text_lost: true })"
    browser.evaluate(f"({restarted.replace('ID', repr(new))})({row(new)})")
    assert browser.evaluate("document.querySelectorAll('#decisions button').length") == 2


@pytest.mark.slow
def test_shadow_mode_is_told(tmp_path, serve, browser):
    browser.open(serve(app(tmp_path / "s.sqlite", alpha=0.1, shadow=True)))
    said = "Shadow mode: every answer is shown, and nothing is decided. Target afterwards: at most 10.0% of the "
    said += "shown answers wrong. aci-rank then learns from all feedback."
    browser.wait(f"document.getElementById('summary').textContent == '{said}'")


@pytest.mark.slow
def test_a_share_far_from_that_of_the_log_is_marked(tmp_path, serve, browser):
    """From 50 questions on: half of the log is answered, and all of these questions. A quarter may be chance."""
    half, most = (([0.9] * n + [0.1] * (100 - n), [0] * n + [1] * (100 - n)) for n in (50, 75))
    application = app(tmp_path / "s.sqlite", alpha=0.1, warm_start=half, keys={"most": {"warm_start": most}})
    for _ in range(200):
        assert application.state.service.decide(0.9, "most").answer
    for _ in range(49):
        assert application.state.service.decide(0.9).answer
    browser.open(serve(application))
    share, other = (f"document.querySelectorAll('#keys .share')[{n}]" for n in (0, 1))
    browser.wait(f"{share}?.textContent == '100.0% (by the log: 49.8%), now scores from 0.900000'")
    assert browser.evaluate(f"{other}.textContent") == "100.0% (by the log: 74.8%), now scores from 0.900000"
    application.state.service.decide(0.9)
    said = "100.0% (by the log: 49.8%; far from it: other questions or scores?), now scores from 0.900000"
    browser.wait(f"{share}.textContent == '{said}' && {share}.matches('.bad')")


@pytest.mark.slow
def test_ratings_on_target_are_not_red_where_feedback_is_imperfect(tmp_path, serve, browser):
    application = app(tmp_path / "s.sqlite", alpha=0.1, flips=(0.1, 0.1), warm_start=EASY)
    service = application.state.service
    for n in range(400):  # 18% wrong, whose interval begins above alpha
        service.feedback(service.decide(0.5).id, n % 50 < 9)
    browser.open(serve(application))
    text = "18.0% of 400 (14.5% to 22.1%), on target at 18.0% (feedback is declared imperfect)"
    browser.wait(f"document.querySelector('#keys .wrong')?.outerHTML == '<td class=\"wrong\">{text}</td>'")


@pytest.mark.slow
def test_four_wrong_ratings_are_too_few_for_red_and_after_many_nothing_is_shown(tmp_path, serve, browser):
    """A learner exactly at its target is then red with a chance of 7% at most, whatever the number of ratings."""
    application = app(tmp_path / "s.sqlite", alpha=0.1, warm_start=EASY)
    service = application.state.service
    browser.open(serve(application))
    wrong, share = "document.querySelector('#keys .wrong')", "document.querySelector('#keys .share')"
    for count, interval, red in ((4, "51.0% to 100.0%", False), (1, "56.6% to 100.0%", True)):
        for _ in range(count):
            assert service.feedback(service.decide(0.5).id, "down") == "counted"
        browser.wait(f"{wrong}?.textContent.endsWith('({interval})')")
        assert browser.evaluate(f"{wrong}.matches('.bad')") == red
    for _ in range(50):
        service.feedback(service.decide(0.5).id, "down")
    figures = service.figures()
    assert math.isnan(figures["threshold"])
    said = f", now none, for about {figures['silent']:,} questions: too many answers counted as wrong"
    browser.wait(f"{share}.textContent.endsWith('{said}')")


@pytest.mark.slow
def test_open_audits_have_a_list_of_their_own(tmp_path, serve, browser, tokens):
    """An auditor needs no scope feedback, and whoever rates gives no verdict."""
    application = app(tmp_path / "s.sqlite", audit=1.0, warm_start=EASY, tokens=tokens)
    service = application.state.service
    ids = [service.decide(0.5, id=f"id-{n}", question=f"Q{n}?", text=f"A{n}.").id for n in range(LATEST + 2)]
    browser.open(serve(application))
    enter(browser, RATER)
    browser.wait(f"!!({row(ids[-1])})")
    browser.evaluate(click("Wrong", ids[-1]))
    browser.wait(f"{row(ids[-1])}.innerText.includes('lacks the scope audit')")
    browser.evaluate("document.getElementById('forget').click()")
    enter(browser, AUDITOR)
    browser.wait(f"!!({row(ids[-1])})")
    assert not browser.evaluate(f"!!({row(ids[0])})")  # one of long ago
    browser.wait(f"document.getElementById('view').textContent == 'Open audits ({len(ids)})'")
    browser.evaluate("document.getElementById('view').click()")
    browser.wait(f"!!({row(ids[0])})")
    assert "A0." in browser.evaluate(f"{row(ids[0])}.innerText")
    browser.wait(
        f"document.getElementById('latest-title').textContent == 'Open audits: {len(ids)}, the oldest first'"
    )
    assert browser.evaluate("document.getElementById('newer').textContent").startswith("Judge the audited answers;")
    summary = "document.getElementById('summary').textContent"
    assert "confidence" not in browser.evaluate(summary)  # the row of the only key has the limit
    assert browser.evaluate("document.querySelector('#keys .share').textContent") == SHARE
    assert browser.evaluate("[...document.querySelectorAll('#decisions .score')].every(each => !each.textContent)")
    assert browser.evaluate("document.querySelector('#keys .limit').textContent") == "nothing proven yet"
    listed = "[...document.querySelectorAll('#decisions .id')].map(each => each.textContent)"
    assert browser.evaluate(listed) == ids[:LATEST]  # those that both lists have, too
    for id in ids[:2]:
        browser.evaluate(click("Wrong", id))
        browser.wait(f"{listed}[0] != {id!r}")
    assert service.figures("")["wrong"] == 2
    point_at(browser, ids[3])
    browser.evaluate(click("Right", ids[2]))
    browser.wait(f"document.getElementById('latest-title').textContent.startsWith('Open audits: {LATEST - 1}')")
    assert browser.evaluate(listed) == ids[2:]  # the judged one stays while the pointer is over the list
    browser.evaluate("document.getElementById('view').click()")
    browser.wait("document.getElementById('latest-title').textContent == 'Latest decisions'")
    assert browser.evaluate(listed) == ids[: -LATEST - 1 : -1]
    scores = browser.evaluate("[...document.querySelectorAll('#decisions .score')].map(each => each.textContent)")
    assert scores == [""] * (LATEST - 1) + ["0.500000"]  # of the judged one alone

    # audits that arrive after the other list was chosen are not shown
    browser.evaluate("""window.whole = fetch;
        window.fetch = (path, options) => path !== "v1/audits" ? whole(path, options)
            : new Promise(resolve => { window.release = () => resolve(whole(path, options)); });""")
    browser.evaluate("document.getElementById('view').click()")
    browser.wait("!!window.release")
    browser.evaluate("document.getElementById('view').click()")
    browser.wait(f"{listed}.length == {LATEST}")
    browser.evaluate("release()")
    time.sleep(0.3)
    assert browser.evaluate("document.getElementById('latest-title').textContent") == "Latest decisions"

    for id in ids[3:]:
        service.feedback(id, "up")
    browser.wait("document.querySelector('#keys .limit').textContent.startsWith('at most ')")
    service.feedback(service.decide(0.0, "other").id, "up")
    browser.wait(f"{summary}.includes('since the journal began, with 95% confidence: at most ')")
    browser.evaluate("window.fetch = whole; document.getElementById('view').click()")
    browser.wait("document.getElementById('latest-title').textContent == 'No open audits.'")
    assert not browser.evaluate("['newer', 'list'].some(id => document.getElementById(id).checkVisibility())")


@pytest.mark.slow
def test_a_token_is_asked_for(tmp_path, serve, browser, tokens):
    outer = FastAPI()
    outer.mount("/abstain", application := app(tmp_path / "s.sqlite", alpha=0.1, tokens=tokens))
    service = application.state.service
    url = serve(outer)
    id = shown_answer(service)
    browser.open(f"{url}abstain/")
    enter(browser, "wrong-token-00001")
    browser.wait("document.getElementById('refused').textContent.includes('does not know')")
    assert not browser.evaluate("document.querySelector('main').checkVisibility()")
    enter(browser, READER)
    browser.wait(f"!!({row(id)})")
    browser.evaluate(click("Right", id))
    browser.wait(f"{row(id)}.innerText.includes('scope feedback')")
    assert service.figures("billing")["observed"] == 0
    browser.evaluate("document.getElementById('forget').click()")
    enter(browser, RATER)
    browser.wait(f"!!({row(id)})")
    browser.evaluate(click("Right", id))
    browser.wait(f"{row(id)}.innerText.includes('counted')")
    assert service.figures("billing")["observed"] == 1
    assert RATER not in browser.evaluate("document.documentElement.outerHTML + location + document.cookie")
    assert browser.evaluate("localStorage.length") == 0
    service.close()


@pytest.mark.slow
def test_texts_of_strangers_are_texts(tmp_path, serve, browser):
    application = app(tmp_path / "s.sqlite", alpha=0.1)
    service = application.state.service
    for key in (HOSTILE, f"user{OVERRIDE}gnillib", "long " * 50, "__proto__"):
        service.decide(0.9, key, f"id {HOSTILE} {key}"[:250], question=HOSTILE, text=f"{OVERRIDE}{HOSTILE}" * 30)
    browser.open(serve(application))
    browser.wait("document.querySelectorAll('#decisions tr').length == 4")
    time.sleep(0.2)  # until an image would have failed
    assert browser.evaluate("window.attacked") is None
    assert browser.evaluate("document.querySelectorAll('img, script').length") == 1
    assert HOSTILE in browser.evaluate("document.getElementById('keys').textContent")
    assert OVERRIDE not in browser.evaluate("document.body.textContent")
    assert browser.evaluate("document.querySelectorAll('#keys tr').length") == 4
    assert browser.evaluate("document.documentElement.scrollWidth <= innerWidth")
    # long texts scroll within their row
    long = "[...document.querySelectorAll('bdi')].filter(each => each.scrollHeight > each.clientHeight + 1)"
    assert browser.evaluate(f"{long}.length") >= 5  # the texts, and a key
    assert browser.evaluate(f"Math.max(...{long}.map(each => each.clientHeight))") < 100


@pytest.mark.slow
def test_updates_leave_the_reader_alone(tmp_path, serve, browser):
    application = app(tmp_path / "s.sqlite", alpha=0.1)
    service = application.state.service
    ids = [service.decide(0.9, f"key {i % 20}").id for i in range(100)]
    browser.open(serve(application))
    browser.wait(f"!!({row(ids[-1])})")
    browser.evaluate(f"window.before = {row(ids[-1])}")
    browser.evaluate("document.querySelector('#keys tr').id = 'first'")

    # the pointer is over the list: newer decisions wait
    point_at(browser, ids[-1])
    id = service.decide(0.9, "key 0").id
    browser.wait("document.getElementById('newer').textContent.startsWith('1 newer')")
    assert browser.evaluate("window.before === document.querySelector('#decisions tr')")
    browser.send("Input.dispatchMouseEvent", type="mouseMoved", x=1, y=1)
    browser.wait(f"!!({row(id)})")
    assert "wait" not in browser.evaluate("document.getElementById('newer').textContent")

    # focus and scroll position stay, and the nodes do
    browser.evaluate("document.querySelector('#legend summary').focus()")
    browser.evaluate(f"{row(ids[50])}.scrollIntoView()")
    top = f"{row(ids[50])}.getBoundingClientRect().top"
    before = browser.evaluate(top)
    newest = service.decide(0.9, "key 1").id
    browser.wait(f"!!({row(newest)})")
    assert browser.evaluate("document.activeElement.parentElement.id") == "legend"
    assert browser.evaluate(top) == pytest.approx(before, abs=1)
    assert browser.evaluate("window.before.isConnected && !!document.querySelector('#keys #first')")
    assert browser.evaluate("document.querySelectorAll('#decisions tr').length") == 100


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_can_be_read(tmp_path, serve, browser, scheme):
    """WCAG AA: all visible texts have a contrast of 4.5 or more, and nothing is wider than a small screen."""
    application = app(tmp_path / "s.sqlite", alpha=0.1, audit=0.5)
    service = application.state.service
    for _ in range(300):
        decision = service.decide(0.9, "billing", question="When is it due?", text="In May. " * 40)
        if decision.audit and decision.answer:
            service.feedback(decision.id, "down")
    for _ in range(20):  # of which some are audited
        service.show(0.9)
    browser.send("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
    browser.send("Emulation.setDeviceMetricsOverride", width=400, height=800, deviceScaleFactor=1, mobile=False)
    browser.open(serve(application))
    browser.wait("document.querySelectorAll('#decisions tr').length == 100")
    browser.evaluate("document.getElementById('legend').open = true")
    assert browser.evaluate("document.documentElement.scrollWidth <= innerWidth")
    last = "[...document.querySelectorAll('#decisions button')].pop()"  # all buttons are in sight
    assert 0 < browser.evaluate(f"{last}.getBoundingClientRect().right") < 400
    assert browser.evaluate("[...$('filled').children].every(each => each.scrollWidth <= each.clientWidth)")
    dark = browser.evaluate("getComputedStyle(document.body).backgroundColor.match(/\\d+/)[0] < 128")
    assert dark == (scheme == "dark")
    worst = browser.evaluate(CONTRAST)
    assert worst["texts"] > 100
    assert worst["contrast"] >= 4.5, worst


CONTRAST = """(() => {
  const luminance = color => color.match(/[\\d.]+/g).slice(0, 3).map(each => each / 255)
    .map(each => each <= .04045 ? each / 12.92 : ((each + .055) / 1.055) ** 2.4)
    .reduce((sum, each, i) => sum + each * [.2126, .7152, .0722][i], 0);
  const background = node => {
    const color = getComputedStyle(node).backgroundColor;
    return color === "rgba(0, 0, 0, 0)" ? background(node.parentElement) : color;
  };
  const worst = { contrast: 21, texts: 0 };
  for (const node of document.body.querySelectorAll("*")) {
    const text = [...node.childNodes].filter(each => each.nodeType === 3).map(each => each.data.trim()).join("");
    if (!text || !node.checkVisibility() || !node.clientHeight && !node.offsetHeight) continue;
    const [low, high] = [getComputedStyle(node).color, background(node)].map(luminance).sort((a, b) => a - b);
    const contrast = (high + .05) / (low + .05);
    worst.texts++;
    if (contrast < worst.contrast) Object.assign(worst, { contrast, text, of: node.outerHTML.slice(0, 200) });
  }
  return worst;
})()"""


# The overview: computed once for all that wait for it, and not sent again while nothing has changed.


def test_the_overview_is_computed_once_for_all_that_wait(client, monkeypatch):
    service, computed = client.app.state.service, []
    overview = service.overview

    def slow_overview(texts):
        computed.append(service.change_count)
        time.sleep(0.1)
        return overview(texts)

    monkeypatch.setattr(service, "overview", slow_overview)
    with ThreadPoolExecutor(10) as pool:
        replies = pool.map(lambda _: client.get("/v1/overview"), range(10))
    assert [reply.status_code for reply in replies] == [200] * 10
    assert len(computed) == 1


def test_an_overview_that_has_not_changed_is_not_sent_again(opened):
    """Numbers in it that are not defined are null."""
    with opened(**CONFIGURATION) as client:
        tag = ""

        def changed():
            """Whether the overview is sent again to a client that has the latest one."""
            nonlocal tag
            reply = client.get("/v1/overview", headers={"If-None-Match": tag})
            assert (reply.status_code == 304) == (reply.headers["etag"] == tag)
            if reply.status_code == 200:
                json.loads(reply.text, parse_constant=pytest.fail)
            else:
                assert not reply.text
            known, tag = tag, reply.headers["etag"]
            return tag != known

        def outcome(path, **body):
            return client.post(f"/v1/{path}", json=body).json()["reason"]

        assert [changed(), changed()] == [True, False]
        weak = client.get("/v1/overview", headers={"If-None-Match": f"W/{tag}"})  # by a proxy that compresses
        assert (weak.status_code, weak.headers["etag"]) == (304, tag)
        id = answered(client, key="a")
        assert changed()
        client.post("/v1/decide", json={"score": 1, "key": "a", "id": id})  # the same decision again
        assert not changed()
        for expected, changes, path, body in (
            ("unknown", False, "feedback", {"id": "never", "error": 1}),
            ("counted", True, "feedback", {"id": id, "error": 1}),
            ("repeated", False, "feedback", {"id": id, "error": 0}),
            ("withdrawn", True, "withdraw", {"id": id}),
            ("withdrawn", False, "withdraw", {"id": id}),
        ):
            assert (outcome(path, **body), changed()) == (expected, changes)
        withheld = answered(client, answer=False, score=0)
        assert outcome("feedback", id=withheld, error=1) == "withheld"  # kept, but no learner has it
        rows = {row["id"]: row["error"] for row in client.get("/v1/overview").json()["latest"]}
        assert (rows[id], rows[withheld]) == (1.0, None)
    with opened() as client:  # the number of changes begins at 0 again
        assert changed()
