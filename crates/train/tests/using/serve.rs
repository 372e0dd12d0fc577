//! `zoo serve`: requests that are answered and refused, and the end of the server.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use crate::runs::*;
use crate::server::{Serve, event, folder};

trials! {
    trials(Runs):
    runs_curves_and_reports,
    every_model_answers,
    a_model_is_loaded_once,
    requests_of_others_are_refused,
    names_are_not_paths,
    limits_have_clear_errors,
    invalid_texts_have_clear_errors,
    port_in_use_and_missing_folder,
    #[cfg(unix)]
    signals_stop_the_server,
    #[cfg(target_os = "linux")]
    the_browser_gets_the_token_from_a_file,
}

fn runs_curves_and_reports(runs: &Runs) {
    let folder = folder(runs, "serve-list", &[Kind::Transformer, Kind::Gpt]);
    std::fs::create_dir_all(folder.join("broken")).unwrap();
    std::fs::write(folder.join("broken/config.toml"), "[model]\n").unwrap();
    let reports = runs.file("serve-reports");
    for name in ["one & <two>", "empty"] {
        std::fs::create_dir_all(reports.join(name)).unwrap();
    }
    std::fs::write(reports.join("one & <two>/report.html"), "<p>a report").unwrap();
    let server = Serve::start(&folder, &["--bench", reports.to_str().unwrap()]);
    for (path, content) in [
        ("", "<title>Attention Zoo</title>"),
        ("script.js", "api/runs"),
        ("style.css", "prefers-color-scheme"),
    ] {
        let reply = server.get(path);
        assert_eq!(reply.status, 200);
        has(&reply.body, content);
        for external in ["http://", "https://", "@import", "url(", "//"] {
            assert!(
                !reply.body.contains(&format!("\"{external}")),
                "{path}: {external}"
            );
        }
        has(
            &reply.headers,
            "content-security-policy: default-src 'none'",
        );
        has(&reply.headers, "referrer-policy: no-referrer");
    }
    let listed = server.list();
    let [gpt, transformer] = listed["runs"].as_array().unwrap().as_slice() else {
        panic!("{listed}");
    };
    assert_eq!([&gpt["run"], &gpt["command"]], ["gpt", "generate"]);
    assert_eq!(transformer["command"], "translate");
    assert_eq!(transformer["steps_done"], 6);
    assert_eq!(transformer["state"], "finished");
    has(transformer["text"]["best"].as_str().unwrap(), "exact ");
    assert_eq!(listed["damaged"][0]["run"], "broken");
    has(
        listed["damaged"][0]["error"].as_str().unwrap(),
        "missing key data.kind",
    );
    // Curves follow the run.
    let curves = || {
        let reply = server.post("api/curves", &json!({"runs": ["transformer", "gpt"]}));
        assert_eq!(reply.status, 200, "{}", reply.body);
        let value: Value = serde_json::from_str(&reply.body).unwrap();
        value["html"].as_str().unwrap().to_owned()
    };
    has(&curves(), "training loss");
    let metrics = folder.join("transformer/metrics.jsonl");
    let mut file = std::fs::File::options().append(true).open(metrics).unwrap();
    writeln!(file, r#"{{"part":"train","step":700,"loss":0.0123}}"#).unwrap();
    assert_eq!(server.list()["runs"][1]["steps_done"], 700);
    has(&curves(), "lowest 0.0123 at step 700");
    // Reports.
    let listed = server.list();
    let [report] = listed["reports"].as_array().unwrap().as_slice() else {
        panic!("{listed}");
    };
    assert_eq!(report["name"], "one & <two>");
    let reply = server.get(report["path"].as_str().unwrap());
    assert_eq!((reply.status, reply.body.as_str()), (200, "<p>a report"));
    // Its scripts have no access to the server.
    has(
        &reply.headers,
        "content-security-policy: sandbox allow-scripts;",
    );
    // The current folder has a name, too.
    let report = reports.join("one & <two>");
    let server = Serve::start_with(&folder, &["--bench", "."], |command| {
        command.current_dir(&report);
    });
    assert_eq!(server.list()["reports"][0]["name"], "one & <two>");
}

fn every_model_answers(runs: &Runs) {
    let folder = folder(runs, "serve-models", &KINDS);
    let server = Serve::start(&folder, &[]);
    let none = &json!({});
    for (kind, text, result, part) in [
        ("transformer", "a b c\nd", "translations", "Cross-attention"),
        ("seq2seq", "a b c", "translations", "Alignment"),
        ("gpt", "to be", "text", "Self-attention"),
        ("classifier", "[ MAX 1 2 ]", "classes", "Pooling"),
        (
            "han",
            "one two three .\nfour five .",
            "classes",
            "class=\"word\"",
        ),
    ] {
        let events = server.infer(kind, text, none);
        assert!(!event(&events, result).is_null(), "{kind}: {events:?}");
        let id = event(&events, "attention");
        let page = server.get(&format!("attention/{id}"));
        assert_eq!(page.status, 200, "{kind}");
        has(&page.body, part);
        has(
            &page.headers,
            "content-security-policy: sandbox allow-scripts;",
        );
        has(event(&events, "done")[0].as_str().unwrap(), kind);
    }
    // One translation for each line, as `zoo translate` gives it.
    let events = server.infer("transformer", "a b c\n\nd\n", none);
    let translations = event(&events, "translations").as_array().unwrap();
    let sources: Vec<&Value> = translations.iter().map(|it| &it["source"]).collect();
    assert_eq!(sources, ["a b c", "d"]);
    let file = runs.text_file("serve-translate.txt", "a b c\nd\n");
    let run = folder.join("transformer").display().to_string();
    let args = [run.as_str(), "--file", &file];
    let expected = run_ok::<zoo_train::cli::translate::Translate>(&args);
    let texts = translations.iter().map(|it| it["texts"][0][0].as_str());
    let texts: Vec<&str> = texts.map(Option::unwrap).collect();
    assert_eq!(texts, expected.lines().collect::<Vec<_>>());
    // Decoding options, and the whole text of `zoo generate`.
    let decoding = json!({"strategy": "beam", "beams": 3, "n_best": 2});
    let events = server.infer("transformer", "a b", &decoding);
    let texts = event(&events, "translations")[0]["texts"].as_array();
    assert_eq!(texts.unwrap().len(), 2);
    let decoding = json!({"strategy": "sample", "seed": 7, "max_length": 30});
    let events = server.infer("gpt", "to be", &decoding);
    let pieces = events.iter().filter_map(|event| event["text"].as_str());
    let run = folder.join("gpt").display().to_string();
    let flags = "--prompt,to be,--strategy,sample,--seed,7,--max-length,30";
    let args: Vec<&str> = std::iter::once(run.as_str())
        .chain(flags.split(','))
        .collect();
    let expected = run_ok::<zoo_train::cli::generate::Generate>(&args);
    assert_eq!(pieces.collect::<String>(), expected);
    // A text that is longer than the context of 16 tokens.
    let note = event(&events, "note").as_str().unwrap();
    starts(note, "attention weights of the first 16 of ");
    assert!(!event(&events, "attention").is_null());
    // Examples of the data.
    let example = |number: usize| {
        let body = json!({"run": "transformer", "example": number});
        let reply = server.post("api/infer", &body);
        let events = reply.body.lines().map(serde_json::from_str);
        events.collect::<Result<Vec<Value>, _>>().unwrap()
    };
    let events = example(2);
    let shown = event(&events, "example");
    assert_eq!(shown["text"], shown["reference"], "the task is to copy");
    let error = "the test data has 6 examples; the number must be from 1 to 6";
    assert_eq!(event(&example(7), "error"), error);
    // Words that are not in the vocabulary are named.
    let events = server.infer("transformer", "a flerb", none);
    has(event(&events, "note").as_str().unwrap(), "<unk>: \"flerb\"");
}

fn a_model_is_loaded_once(runs: &Runs) {
    let folder = folder(runs, "serve-cache", &[Kind::Transformer]);
    let server = Serve::start(&folder, &[]);
    let loads = || {
        let events = server.infer("transformer", "a b", &json!({}));
        let is_load = |event: &&Value| event["status"] == "loading the model";
        events.iter().filter(is_load).count()
    };
    assert_eq!([loads(), loads()], [1, 0]);
    // Another best checkpoint.
    let path = folder.join("transformer/best.json");
    let mut best: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    best["step"] = json!(if best["step"] == 4 { 6 } else { 4 });
    std::fs::write(&path, best.to_string()).unwrap();
    assert_eq!([loads(), loads()], [1, 0]);
    // Another run in the same folder.
    let path = folder.join("transformer/run.json");
    let mut metadata: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    metadata["started"] = json!("2031-01-01T00:00:00Z");
    std::fs::write(&path, metadata.to_string()).unwrap();
    assert_eq!([loads(), loads()], [1, 0]);
}

fn requests_of_others_are_refused(runs: &Runs) {
    let folder = folder(runs, "serve-others", &[Kind::Gpt]);
    let server = Serve::start(&folder, &[]);
    let host = server.host();
    let own = format!("http://{host}");
    let json = ("Content-Type", "application/json");
    let api = format!("/{}/api/runs", server.token);
    let refused = |path: &str, headers: &[(&str, &str)], status: u16, expected: &str| {
        for method in ["GET", "POST"] {
            let reply = server.send(method, path, headers, "");
            assert_eq!(reply.status, status, "{method} {path} {headers:?}");
            has(&reply.body, expected);
            lacks(&reply.body, "gpt");
            lacks(&reply.headers, "access-control");
        }
    };
    // DNS rebinding: the name of a web page that resolves to 127.0.0.1.
    let rebound = format!("rebound.example:{}", server.port);
    let origin = format!("http://{rebound}");
    let expected = format!("error: the Host of the request is not {host} or localhost");
    refused(&api, &[("Host", &rebound), json], 403, &expected);
    let headers = [("Host", rebound.as_str()), ("Origin", &origin), json];
    refused(&api, &headers, 403, "  help: open the address");
    refused(&api, &[json], 403, &expected);
    // A script or a form of another page.
    for origin in ["https://example.com", "null", "http://127.0.0.1:1"] {
        let headers = [("Host", host.as_str()), ("Origin", origin), json];
        refused(&api, &headers, 403, "error: requests from other web pages");
    }
    // Another user of the machine, without the token or with that of an earlier start.
    let earlier = format!("/{}/api/runs", "0".repeat(32));
    for path in [
        "/",
        "/api/runs",
        "/script.js",
        &earlier,
        &api.to_uppercase(),
    ] {
        let headers = [("Host", host.as_str()), ("Origin", &own), json];
        refused(path, &headers, 403, "error: the address has no valid token");
    }
    let form = [("Host", host.as_str()), ("Content-Type", "text/plain")];
    assert_eq!(server.send("POST", &api, &form, "{}").status, 415);
    let headers = [("Host", host.as_str())];
    assert_eq!(server.send("DELETE", &api, &headers, "").status, 405);
    // Not reachable at other addresses, of which Linux has many.
    if cfg!(target_os = "linux") {
        let other = TcpStream::connect(("127.0.0.2", server.port));
        assert!(other.is_err(), "{other:?}");
    }
    assert_eq!(server.send("GET", &api, &headers, "").status, 200);
    assert_ne!(Serve::start(&folder, &[]).token, server.token);
}

fn names_are_not_paths(runs: &Runs) {
    let folder = folder(runs, "serve-paths", &[Kind::Transformer]);
    copy_folder(&folder.join("transformer"), &runs.file("serve-outside"));
    let outside = runs.file("serve-outside").display().to_string();
    let server = Serve::start(&folder, &["--bench", &format!("{}/none", folder.display())]);
    for name in [
        "../serve-outside",
        "./transformer",
        "transformer/",
        "transformer/../transformer",
        "..",
        "",
        &outside,
        "..\\serve-outside",
        "transformer\0",
    ] {
        let body = json!({"run": name, "text": "a"});
        let reply = server.post("api/infer", &body);
        assert_eq!(reply.status, 404, "{name}: {}", reply.body);
        starts(&reply.body, "error: no run ");
        let reply = server.post("api/curves", &json!({"runs": [name]}));
        assert_eq!(reply.status, 404, "{name}: {}", reply.body);
    }
    for path in [
        "../transformer/config.toml",
        "transformer/config.toml",
        "report/../transformer/config.toml",
        "report/%2e%2e%2ftransformer%2fconfig.toml",
        "report/2e2e2f7472616e73666f726d6572",
        "attention/../../config.toml",
        "attention/1",
    ] {
        let reply = server.get(path);
        assert_eq!(reply.status, 404, "{path}: {}", reply.body);
    }
}

fn limits_have_clear_errors(runs: &Runs) {
    let folder = folder(runs, "serve-limits", &[Kind::Gpt, Kind::Transformer]);
    let server = Serve::start(&folder, &[]);
    let text = |length: usize| json!({"run": "gpt", "text": "é".repeat(length)});
    let reply = server.post("api/infer", &text(20_001));
    assert_eq!(reply.status, 413);
    let expected = "error: the text has 20,001 characters; at most 20,000 are allowed\n  help: ";
    starts(&reply.body, expected);
    let reply = server.post("api/infer", &text(200_000));
    assert_eq!(
        (reply.status, reply.body.as_str()),
        (413, "error: a request has at most 256 KiB\n")
    );
    // A declared length alone reserves nothing.
    let path = format!("/{}/api/infer", server.token);
    let host = server.host();
    let headers = [
        ("Host", host.as_str()),
        ("Content-Type", "application/json"),
        ("Content-Length", "1000000000000000"),
    ];
    let mut stream = TcpStream::connect(("127.0.0.1", server.port)).unwrap();
    let headers = headers.map(|(name, value)| format!("{name}: {value}\r\n"));
    let request = format!("POST {path} HTTP/1.0\r\n{}\r\n", headers.concat());
    stream.write_all(request.as_bytes()).unwrap();
    let mut response = String::new();
    stream.read_to_string(&mut response).unwrap();
    starts(&response, "HTTP/1.0 413 ");
    let long = "x".repeat(100_000);
    let headers = [("Host", host.as_str()), ("X-Long", &long)];
    assert_eq!(server.send("GET", &path, &headers, "").status, 431);
    let reply = server.post("api/infer", &json!({"run": "gpt", "txt": ""}));
    assert_eq!(reply.status, 400);
    starts(
        &reply.body,
        "error: the request is invalid: unknown field `txt`",
    );
    let error = |run: &str, decoding: Value| {
        let events = server.infer(run, "a", &decoding);
        event(&events, "error").as_str().unwrap().to_owned()
    };
    let expected = "at most 2,000 tokens and 64 beams are allowed";
    starts(&error("gpt", json!({"max_length": 100_000})), expected);
    starts(&error("transformer", json!({"beams": 65})), expected);
}

fn invalid_texts_have_clear_errors(runs: &Runs) {
    let folder = folder(runs, "serve-texts", &[Kind::Transformer, Kind::Classifier]);
    let server = Serve::start(&folder, &[]);
    let error = |run: &str, text: &str, decoding: Value| {
        let events = server.infer(run, text, &decoding);
        event(&events, "error").as_str().unwrap().to_owned()
    };
    for run in ["transformer", "classifier"] {
        assert_eq!(error(run, " \n", json!({})), "the text is empty");
    }
    let expected = "line 2 has 7 tokens; the model's context is 6\n  help: shorten it";
    assert_eq!(
        error("transformer", "a\na b c d a b c", json!({})),
        expected
    );
    let both = json!({"n_best": 2, "top_p": 0.5});
    has(
        &error("transformer", "a", both),
        "--n-best (beam search) cannot",
    );
    // The server continues.
    assert!(!event(&server.infer("transformer", "a", &json!({})), "done").is_null());
    std::fs::remove_dir_all(folder.join("transformer/checkpoints")).unwrap();
    std::fs::remove_file(folder.join("transformer/best.json")).unwrap();
    has(
        &error("transformer", "a", json!({})),
        "no checkpoint yet\n  help: ",
    );
}

fn port_in_use_and_missing_folder(runs: &Runs) {
    let folder = folder(runs, "serve-port", &[]);
    let server = Serve::start(&folder, &[]);
    let port = server.port.to_string();
    let run = |folder: &Path| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_zoo"));
        let command = command.arg("serve").arg(folder).args(["--port", &port]);
        let output = command.output().unwrap();
        assert!(!output.status.success() && output.stdout.is_empty());
        String::from_utf8(output.stderr).unwrap()
    };
    let expected = format!(
        "error: port {port} of 127.0.0.1 is in use, perhaps by another `zoo serve`\n  help: --port \
         0 selects a free port, --port N another one\n"
    );
    assert_eq!(run(&folder), expected);
    let none = runs.file("zzz");
    let expected = format!("error: no folder {}\n  help: `zoo serve ", none.display());
    starts(&run(&none), expected);
    let message = run(&runs.file("serve-prot"));
    let expected = format!("\n  help: did you mean {}?\n", folder.display());
    ends(&message, expected);
}

/// Also with an open connection and while a model computes.
#[cfg(unix)]
fn signals_stop_the_server(runs: &Runs) {
    let folder = folder(runs, "serve-signals", &[Kind::Gpt]);
    for signal in ["-INT", "-TERM"] {
        let mut server = Serve::start(&folder, &[]);
        let _idle = TcpStream::connect(("127.0.0.1", server.port)).unwrap();
        let body = json!({"run": "gpt", "text": "to be", "decoding": {"max_length": 2000}});
        let body = body.to_string();
        let mut busy = TcpStream::connect(("127.0.0.1", server.port)).unwrap();
        let request = format!(
            "POST /{}/api/infer HTTP/1.0\r\nHost: {}\r\nContent-Type: application/json\r\n\
             Content-Length: {}\r\n\r\n{body}",
            server.token,
            server.host(),
            body.len()
        );
        busy.write_all(request.as_bytes()).unwrap();
        let mut lines = BufReader::new(busy).lines();
        assert!(lines.any(|line| line.unwrap().contains("\"text\"")));
        let id = server.child.id().to_string();
        let killed = Command::new("kill").args([signal, &id]).status().unwrap();
        assert!(killed.success());
        let status = server.child.wait().unwrap();
        let mut stderr = String::new();
        let pipe = server.child.stderr.as_mut().unwrap();
        pipe.read_to_string(&mut stderr).unwrap();
        assert!(status.success(), "{status}: {stderr}");
        // The computation of a token takes longer on a loaded machine.
        let notice = "waiting for the current computation (Ctrl-C again: exit now)\n";
        assert_eq!(stderr.replace(notice, ""), "Ctrl-C stops the server\n");
    }
}

/// All users can read the arguments of a process.
#[cfg(target_os = "linux")]
fn the_browser_gets_the_token_from_a_file(runs: &Runs) {
    use std::os::unix::fs::PermissionsExt;
    use std::time::Instant;

    let folder = folder(runs, "serve-open", &[]);
    let programs = runs.file("serve-programs");
    std::fs::create_dir_all(&programs).unwrap();
    let (program, log) = (programs.join("xdg-open"), programs.join("log"));
    let script = format!(
        "#!/bin/sh\nread -r _ _ _ _ group _ < /proc/$$/stat\necho \"$*\n$$ $group\" > {0}.new\n\
         mv {0}.new {0}\n",
        log.display()
    );
    std::fs::write(&program, script).unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    let mut server = Serve::start_with(&folder, &["--open"], |command| {
        command.env("PATH", format!("{}:/usr/bin:/bin", programs.display()));
        command.env("TMPDIR", &programs);
    });
    let start = Instant::now();
    while !log.exists() {
        assert!(start.elapsed() < TIMEOUT, "the browser was not opened");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    let text = std::fs::read_to_string(&log).unwrap();
    lacks(&text, &server.token);
    let [page, ids] = text.lines().collect::<Vec<_>>()[..] else {
        panic!("{text}");
    };
    has(&std::fs::read_to_string(page).unwrap(), server.url());
    let mode = std::fs::metadata(page).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    // Ctrl-C in the terminal of the server does not reach the browser.
    let (id, group) = ids.split_once(' ').unwrap();
    assert_eq!(id, group);
    let id = server.child.id().to_string();
    assert!(Command::new("kill").arg(&id).status().unwrap().success());
    assert!(server.child.wait().unwrap().success());
    assert!(!Path::new(page).exists());
}
