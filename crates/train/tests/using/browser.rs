//! The page of `zoo serve` in Chromium, driven by its DevTools protocol; ignored if it is not
//! installed.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use libtest_mimic::Trial;
use serde_json::{Value, json};

use crate::runs::*;
use crate::server::{Serve, folder};

type Test = fn(&Runs, &Path);

pub(crate) fn trials(runs: &Runs) -> Vec<Trial> {
    // The protocol uses file descriptors of a Unix shell.
    let browser = zoo_viz::browser::find().filter(|_| cfg!(unix));
    let tests: [(&str, Test); 3] = [
        ("serve_page_shows_runs_and_curves", shows_runs_and_curves),
        ("serve_page_uses_models", uses_models),
        ("serve_page_is_safe", is_safe),
    ];
    let trial = |(name, test): (&str, Test)| {
        let (runs, browser) = (runs.clone(), browser.clone());
        let is_ignored = browser.is_none();
        Trial::test(format!("browser::{name}"), move || {
            test(&runs, &browser.ok_or("there is no chromium on the PATH")?);
            Ok(())
        })
        .with_ignored_flag(is_ignored)
    };
    tests.map(trial).into()
}

/// A tab of a browser.
struct Tab {
    child: Child,
    responses: BufReader<ChildStdout>,
    session: Option<String>,
    count: u64,
    /// Messages of the console, exceptions, violations of the policy and failed requests.
    problems: Vec<String>,
}

impl Tab {
    fn open(browser: &Path, profile: &Path, url: &str) -> Self {
        // Requests come from file descriptor 3, responses go to 4.
        let mut child = Command::new("sh")
            .args(["-c", "exec \"$0\" \"$@\" 3<&0 4>&1 0</dev/null 1>/dev/null"])
            .arg(browser)
            .args(["--headless", "--no-sandbox", "--disable-gpu"])
            .arg("--remote-debugging-pipe")
            .arg(format!("--user-data-dir={}", profile.display()))
            .arg("about:blank")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut tab = Self {
            responses: BufReader::new(child.stdout.take().unwrap()),
            child,
            session: None,
            count: 0,
            problems: vec![],
        };
        let targets = tab.call("Target.getTargets", json!({}));
        let targets = targets["targetInfos"].as_array().unwrap();
        let page = targets.iter().find(|it| it["type"] == "page").unwrap();
        let params = json!({"targetId": page["targetId"], "flatten": true});
        let attached = tab.call("Target.attachToTarget", params);
        tab.session = attached["sessionId"].as_str().map(ToOwned::to_owned);
        for domain in ["Runtime", "Log", "Page"] {
            tab.call(&format!("{domain}.enable"), json!({}));
        }
        tab.resize(1400);
        tab.go(url);
        tab
    }

    fn call(&mut self, method: &str, params: Value) -> Value {
        self.count += 1;
        let mut message = json!({"id": self.count, "method": method, "params": params});
        if let Some(session) = &self.session {
            message["sessionId"] = json!(session);
        }
        let stdin = self.child.stdin.as_mut().unwrap();
        stdin.write_all(format!("{message}\0").as_bytes()).unwrap();
        stdin.flush().unwrap();
        loop {
            let mut bytes = vec![];
            self.responses.read_until(0, &mut bytes).unwrap();
            assert_eq!(bytes.pop(), Some(0), "the browser has ended in {method}");
            let response: Value = serde_json::from_slice(&bytes).unwrap();
            if response["id"] == self.count {
                assert!(response["error"].is_null(), "{method}: {response}");
                return response["result"].clone();
            }
            let event = response["method"].as_str().unwrap_or_default();
            if matches!(
                event,
                "Runtime.consoleAPICalled" | "Runtime.exceptionThrown" | "Log.entryAdded"
            ) || event == "Page.javascriptDialogOpening"
            {
                self.problems.push(response.to_string());
            }
        }
    }

    fn go(&mut self, url: &str) {
        self.call("Page.navigate", json!({"url": url}));
        self.wait("document.readyState", "complete");
    }

    fn resize(&mut self, width: usize) {
        let size = json!({"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": false});
        self.call("Emulation.setDeviceMetricsOverride", size);
    }

    /// The value of an expression.
    #[track_caller]
    fn eval(&mut self, expression: &str) -> Value {
        let params = json!({"expression": expression, "awaitPromise": true, "returnByValue": true});
        let result = self.call("Runtime.evaluate", params);
        assert!(
            result["exceptionDetails"].is_null(),
            "{expression}: {result}"
        );
        result["result"]["value"].clone()
    }

    /// Waits until an expression has this value.
    #[track_caller]
    fn wait(&mut self, expression: &str, expected: impl Into<Value>) {
        let expected = expected.into();
        let start = Instant::now();
        loop {
            let value = self.eval(expression);
            if value == expected {
                return;
            }
            assert!(
                start.elapsed() < TIMEOUT,
                "{expression} is {value}, not {expected}; {:?}",
                self.problems
            );
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Clicks with the mouse in the middle of an element.
    #[track_caller]
    fn click(&mut self, selector: &str) {
        let point = self.hover(selector);
        for event in ["mousePressed", "mouseReleased"] {
            let params = json!({
                "type": event, "x": point[0], "y": point[1], "button": "left", "clickCount": 1,
            });
            self.call("Input.dispatchMouseEvent", params);
        }
    }

    /// Moves the mouse to the middle of an element, and returns its position.
    #[track_caller]
    fn hover(&mut self, selector: &str) -> Value {
        let point = self.eval(&format!(
            "(() => {{ const it = document.querySelector({selector:?}); \
             it.scrollIntoView({{ block: 'center', behavior: 'instant' }}); \
             const {{ x, y, width, height }} = it.getBoundingClientRect(); \
             return [x + width / 2, y + height / 2]; }})()"
        ));
        let params = json!({"type": "mouseMoved", "x": point[0], "y": point[1]});
        self.call("Input.dispatchMouseEvent", params);
        point
    }

    /// Types into an element.
    fn enter(&mut self, selector: &str, text: &str) {
        self.eval(&format!("document.querySelector({selector:?}).focus()"));
        self.eval(&format!("document.querySelector({selector:?}).select()"));
        self.call("Input.insertText", json!({"text": text}));
    }

    /// Selects the option with this value.
    fn select(&mut self, selector: &str, value: &str) {
        self.eval(&format!(
            "(() => {{ const it = document.querySelector({selector:?}); it.value = {value:?}; \
             it.dispatchEvent(new Event('change', {{ bubbles: true }})); }})()"
        ));
    }

    #[track_caller]
    fn close(mut self) {
        assert!(self.problems.is_empty(), "{:?}", self.problems);
        self.session = None;
        let message = json!({"id": 0, "method": "Browser.close"});
        let stdin = self.child.stdin.as_mut().unwrap();
        stdin.write_all(format!("{message}\0").as_bytes()).unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Tab {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

const NAMES: &str = "[...document.querySelectorAll('#table tbody tr')].filter((row) => !row.hidden)\
                     .map((row) => row.querySelector('label').textContent).join(' ')";
const PLOTS: &str = "document.querySelectorAll('#plots canvas').length";
const LINES: &str = "[...document.querySelectorAll('.chart-toggle')].filter((it) => !it.hidden)\
                     .map((it) => it.textContent).join(' ')";
const FITS: &str = "document.documentElement.scrollWidth <= innerWidth";

fn shows_runs_and_curves(runs: &Runs, browser: &Path) {
    let kinds = [Kind::Classifier, Kind::Gpt, Kind::Transformer, Kind::Han];
    let folder = folder(runs, "browser-runs", &kinds);
    let reports = runs.file("browser-reports");
    std::fs::create_dir_all(reports.join("first")).unwrap();
    let report =
        "<!doctype html><link rel=icon href=data:,><script>document.title = 'ran'</script>";
    std::fs::write(reports.join("first/report.html"), report).unwrap();
    let server = Serve::start(&folder, &["--bench", reports.to_str().unwrap()]);
    let mut tab = Tab::open(browser, &runs.file("profile-serve-runs"), &server.url());
    tab.wait(NAMES, "classifier gpt han transformer");
    // The curves of the first run; others are added.
    tab.wait(
        "document.querySelectorAll('#table input:checked').length",
        1,
    );
    tab.wait(&format!("{PLOTS} > 0"), true);
    tab.wait(LINES, "classifier");
    tab.click("#table tbody tr:nth-child(4) input");
    tab.wait(LINES, "classifier transformer");
    // A line that is hidden stays hidden in the next update.
    tab.click(".chart-toggle");
    tab.wait(
        "document.querySelectorAll('.chart-toggle[aria-pressed=false]').length",
        1,
    );
    // A run in training: its row and its curves follow.
    let metrics = folder.join("transformer/metrics.jsonl");
    let mut file = std::fs::File::options().append(true).open(metrics).unwrap();
    writeln!(file, r#"{{"part":"train","step":4321,"loss":0.0123}}"#).unwrap();
    tab.wait(
        "document.querySelector('#table').textContent.includes('4,321')",
        true,
    );
    // They are not replaced while the mouse is on them.
    let point =
        "document.querySelector('#plots').innerHTML.includes('lowest 0.0123 at step 4,321')";
    std::thread::sleep(Duration::from_millis(500));
    assert_eq!(tab.eval(point), false);
    tab.click("h1");
    tab.wait(point, true);
    tab.wait(
        "document.querySelectorAll('.chart-toggle[aria-pressed=false]').length",
        1,
    );
    // Values on hover.
    tab.hover("#plots .u-over");
    tab.wait(
        "document.querySelector('.chart-tip').textContent.includes('step = ')",
        true,
    );
    tab.click("h1");
    // A new run appears, a removed one disappears.
    copy_folder(&folder.join("gpt"), &folder.join("another"));
    tab.wait(NAMES, "another classifier gpt han transformer");
    // The label of each row is that of its own checkbox.
    copy_folder(&folder.join("gpt"), &folder.join("second"));
    tab.wait(NAMES, "another classifier gpt han second transformer");
    std::fs::remove_dir_all(folder.join("another")).unwrap();
    tab.wait(NAMES, "classifier gpt han second transformer");
    copy_folder(&folder.join("gpt"), &folder.join("third"));
    tab.wait(NAMES, "classifier gpt han second third transformer");
    let ids = "new Set([...document.querySelectorAll('#table input')].map((it) => it.id)).size";
    assert_eq!(tab.eval(ids), 6);
    for name in ["second", "third"] {
        std::fs::remove_dir_all(folder.join(name)).unwrap();
    }
    tab.wait(NAMES, "classifier gpt han transformer");
    // Order and filter.
    tab.click("th [data-key=steps_done]");
    tab.click("th [data-key=steps_done]");
    tab.wait(&format!("{NAMES}.split(' ')[0]"), "transformer");
    tab.click("th [data-key=run]");
    tab.wait(NAMES, "classifier gpt han transformer");
    tab.enter("#filter", "gpt flash");
    tab.wait(NAMES, "gpt");
    tab.enter("#filter", "classif");
    tab.wait(NAMES, "classifier");
    // A report in its frame.
    tab.click("#report-list button");
    tab.wait("document.querySelector('#report').hidden", false);
    tab.wait("document.querySelector('#report h3').textContent", "first");
    for width in [1400, 400] {
        tab.resize(width);
        tab.wait(FITS, true);
    }
    let path = tab.eval("document.querySelector('#report iframe').src");
    tab.go(path.as_str().unwrap());
    tab.wait("document.title", "ran");
    // Its policy: an origin of its own.
    tab.wait("origin", "null");
    // Without the server, the page says so.
    tab.go(&server.url());
    tab.wait(NAMES, "classifier gpt han transformer");
    drop(server);
    tab.wait("document.querySelector('#offline').hidden", false);
    // The failed requests.
    tab.problems.clear();
    tab.close();
}

fn uses_models(runs: &Runs, browser: &Path) {
    let folder = folder(runs, "browser-models", &KINDS);
    let server = Serve::start(&folder, &[]);
    let mut tab = Tab::open(browser, &runs.file("profile-serve-models"), &server.url());
    tab.wait("document.querySelector('#try').hidden", false);
    let is_done = "document.querySelector('#done').textContent !== '' && \
                   document.querySelector('#stop').hidden";
    let result = "document.querySelector('#result').textContent";
    for (run, button, text, heads) in [
        ("transformer", "Translate", "a b c", 3),
        ("seq2seq", "Translate", "a b", 0),
        ("gpt", "Generate", "to be", 1),
        ("classifier", "Classify", "[ MAX 1 2 ]", 2),
        ("han", "Classify", "one two . three four .", 0),
    ] {
        tab.select("#run", run);
        tab.wait("document.querySelector('#submit').textContent", button);
        tab.enter("#text", text);
        tab.click("#submit");
        tab.wait(is_done, true);
        tab.wait("document.querySelector('#failure').hidden", true);
        tab.wait(&format!("{result} !== ''"), true);
        has(
            tab.eval("document.querySelector('#done').textContent")
                .as_str()
                .unwrap(),
            run,
        );
        // One overview of heads for each part of the attention page.
        tab.wait("document.querySelector('#attention').hidden", false);
        let page = tab.eval("document.querySelector('#attention iframe').src");
        let id = page.as_str().unwrap().rsplit('/').next().unwrap();
        let page = server.get(&format!("attention/{id}"));
        assert_eq!(page.status, 200);
        let overviews = page.body.matches("class=\"overview\"").count();
        assert_eq!(overviews, heads, "{run}");
    }
    // An example of the data with its reference.
    tab.select("#run", "transformer");
    tab.click("#example");
    let note = "document.querySelector('#notes').textContent";
    tab.wait(&format!("{note}.startsWith('reference: ')"), true);
    let is_copy = format!("'reference: ' + document.querySelector('#text').value === {note}");
    tab.wait(&is_copy, true);
    // The first of the six examples comes after the last.
    let first = tab.eval("document.querySelector('#text').value");
    for _ in 0..6 {
        tab.click("#example");
        tab.wait("document.querySelector('#stop').hidden", true);
        tab.wait(&is_copy, true);
        tab.wait("document.querySelector('#failure').hidden", true);
    }
    tab.wait("document.querySelector('#text').value", first);
    tab.click("#submit");
    tab.wait(is_done, true);
    tab.wait(&is_copy, true);
    // Decoding options.
    tab.enter("#text", "a flerb");
    tab.click("summary");
    tab.wait(
        "document.querySelector('[name=beams]').offsetParent === null",
        true,
    );
    tab.select("[name=strategy]", "beam");
    tab.enter("[name=n_best]", "2");
    // Ctrl+Enter in the text.
    tab.eval("document.querySelector('#text').focus()");
    let key = json!({"type": "keyDown", "key": "Enter", "code": "Enter", "modifiers": 2});
    tab.call("Input.dispatchKeyEvent", key);
    tab.wait("document.querySelectorAll('#result .hypothesis').length", 2);
    tab.wait(
        "document.querySelector('#notes').textContent.includes('\"flerb\"')",
        true,
    );
    // Errors.
    tab.enter("#text", "a b c d a b c");
    tab.click("#submit");
    tab.wait(
        "document.querySelector('#failure').textContent",
        "error: line 1 has 7 tokens; the model's context is 6\n  help: shorten it",
    );
    tab.resize(400);
    tab.wait(FITS, true);
    // The scripts of an attention page run.
    tab.go(&format!("{}attention/5", server.url()));
    tab.wait("document.querySelectorAll('.word').length > 0", true);
    tab.wait("origin", "null");
    tab.close();
}

/// Names and texts are not markup, and other pages cannot use the server.
fn is_safe(runs: &Runs, browser: &Path) {
    let folder = folder(runs, "browser-safe", &[Kind::Gpt]);
    let name = "<img src=x onerror=alert(1)>";
    copy_folder(runs.folder(Kind::Transformer), &folder.join(name));
    let server = Serve::start(&folder, &[]);
    let mut tab = Tab::open(browser, &runs.file("profile-serve-safe"), &server.url());
    tab.wait(NAMES, format!("{name} gpt"));
    tab.wait(&format!("{PLOTS} > 0"), true);
    tab.wait(
        "document.querySelector('#plots').textContent.includes('<img')",
        true,
    );
    tab.enter("#text", "<b>a</b>");
    tab.click("#submit");
    tab.wait("document.querySelectorAll('#result .pair').length", 1);
    tab.wait("document.querySelectorAll('main img, main b').length", 0);
    assert_eq!(tab.problems, Vec::<String>::new());
    // A page of another origin.
    tab.go("data:text/html,<title>other</title>");
    tab.wait("document.title", "other");
    let url = server.url();
    for options in [
        "{}",
        "{ mode: 'no-cors' }",
        "{ method: 'POST', mode: 'no-cors', body: '{}' }",
        "{ method: 'POST', headers: { 'Content-Type': 'application/json' }, body: '{}' }",
    ] {
        let fetch =
            format!("fetch('{url}api/runs', {options}).then((it) => it.text(), () => 'refused')");
        assert_eq!(tab.eval(&fetch), "refused", "{options}");
    }
    tab.problems.clear();
    tab.close();
}
