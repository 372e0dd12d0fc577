//! A `zoo serve` process and its client.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};

use crate::runs::*;

/// A server, stopped when it is dropped.
pub(crate) struct Serve {
    pub(crate) child: Child,
    pub(crate) port: u16,
    pub(crate) token: String,
}

pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) headers: String,
    pub(crate) body: String,
}

impl Serve {
    pub(crate) fn start(folder: &Path, args: &[&str]) -> Self {
        Self::start_with(folder, args, |_| {})
    }

    /// Starts a server after a change of its command, such as another environment.
    pub(crate) fn start_with(
        folder: &Path,
        args: &[&str],
        change: impl FnOnce(&mut Command),
    ) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_zoo"));
        command
            .arg("serve")
            .arg(folder)
            .args(["--port", "0"])
            .args(args);
        change(&mut command);
        let mut child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let stdout = child.stdout.as_mut().unwrap();
        BufReader::new(stdout).read_line(&mut line).unwrap();
        let address = line.trim().strip_prefix("http://127.0.0.1:").unwrap();
        let (port, token) = address.trim_end_matches('/').split_once('/').unwrap();
        Self {
            port: port.parse().unwrap(),
            token: token.to_owned(),
            child,
        }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://127.0.0.1:{}/{}/", self.port, self.token)
    }

    /// Sends a request with these headers, and reads the response until the connection ends.
    pub(crate) fn send(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> Reply {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        // Version 1.0: the response is not split into chunks.
        let mut request = format!("{method} {path} HTTP/1.0\r\n");
        for (name, value) in headers {
            request += &format!("{name}: {value}\r\n");
        }
        request += &format!("Content-Length: {}\r\n\r\n{body}", body.len());
        // The server may refuse a request before it has read all of it.
        let _ = stream.write_all(request.as_bytes());
        let mut bytes = vec![];
        let _ = stream.read_to_end(&mut bytes);
        let response = String::from_utf8(bytes).unwrap();
        let (headers, body) = response
            .split_once("\r\n\r\n")
            .unwrap_or_else(|| panic!("{method} {path}: {response:?}"));
        Reply {
            status: headers[9..12].parse().unwrap(),
            headers: headers.to_lowercase(),
            body: body.to_owned(),
        }
    }

    pub(crate) fn host(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    pub(crate) fn get(&self, path: &str) -> Reply {
        let path = format!("/{}/{path}", self.token);
        self.send("GET", &path, &[("Host", &self.host())], "")
    }

    pub(crate) fn post(&self, path: &str, body: &Value) -> Reply {
        let host = self.host();
        let origin = format!("http://{host}");
        let headers = [
            ("Host", host.as_str()),
            ("Origin", &origin),
            ("Content-Type", "application/json"),
        ];
        let path = format!("/{}/{path}", self.token);
        self.send("POST", &path, &headers, &body.to_string())
    }

    /// The events of a text for a run.
    pub(crate) fn infer(&self, run: &str, text: &str, decoding: &Value) -> Vec<Value> {
        let body = json!({"run": run, "text": text, "decoding": decoding});
        let reply = self.post("api/infer", &body);
        assert_eq!(reply.status, 200, "{}", reply.body);
        let lines = reply.body.lines();
        lines
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    }

    pub(crate) fn list(&self) -> Value {
        let reply = self.get("api/runs");
        assert_eq!(reply.status, 200, "{}", reply.body);
        serde_json::from_str(&reply.body).unwrap()
    }
}

impl Drop for Serve {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The value of the last event of this name.
#[track_caller]
pub(crate) fn event<'a>(events: &'a [Value], name: &str) -> &'a Value {
    let mut found = events.iter().rev().filter_map(|event| event.get(name));
    found
        .next()
        .unwrap_or_else(|| panic!("no {name} in {events:?}"))
}

/// A folder with copies of these runs, named after their kinds.
pub(crate) fn folder(runs: &Runs, name: &str, kinds: &[Kind]) -> PathBuf {
    let folder = runs.file(name);
    std::fs::create_dir_all(&folder).unwrap();
    for kind in kinds {
        let to = folder.join(format!("{kind:?}").to_lowercase());
        copy_folder(runs.folder(*kind), &to);
    }
    folder
}
