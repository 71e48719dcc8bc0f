//! A small client of the language server protocol.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

/// The longest time for an answer.
const PATIENCE: Duration = Duration::from_mins(1);

pub struct Client {
    server: Child,
    input: Option<ChildStdin>,
    messages: Receiver<Value>,
    next: u64,
    versions: u64,
    /// The notifications that nobody has asked for yet.
    notes: Vec<Value>,
}

impl Drop for Client {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

impl Client {
    /// Starts the server for a folder.
    pub fn start(folder: &str) -> Client {
        let mut client = Client::start_bare();
        client.initialize(folder);
        client
    }

    pub fn start_bare() -> Client {
        let mut command = Command::new(env!("CARGO_BIN_EXE_lacquer"));
        command.args(["lsp", "--stdio"]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut server = command.spawn().expect("the server starts");
        let input = server.stdin.take();
        let mut output = BufReader::new(server.stdout.take().expect("it is a pipe"));
        let (sender, messages) = mpsc::channel();
        thread::spawn(move || {
            while let Some(message) = read(&mut output) {
                if sender.send(message).is_err() {
                    break;
                }
            }
        });
        Client { server, input, messages, next: 0, versions: 0, notes: Vec::new() }
    }

    pub fn initialize(&mut self, folder: &str) {
        let params = json!({
            "processId": null,
            "rootUri": folder,
            "capabilities": { "general": { "positionEncodings": ["utf-8", "utf-16"] } },
            "workspaceFolders": [{ "uri": folder, "name": "folder" }],
        });
        let answer = self.ask("initialize", &params);
        assert_eq!(answer["capabilities"]["positionEncoding"], "utf-8");
        self.note("initialized", &json!({}));
    }

    pub fn send_bytes(&mut self, bytes: &[u8]) {
        let input = self.input.as_mut().expect("the input is open");
        // A server that has ended reads nothing.
        let _ = input.write_all(bytes).and_then(|()| input.flush());
    }

    pub fn send_raw(&mut self, body: &[u8]) {
        let head = format!("Content-Length: {}\r\n\r\n", body.len());
        self.send_bytes(&[head.as_bytes(), body].concat());
    }

    fn note(&mut self, method: &str, params: &Value) {
        let message = json!({ "jsonrpc": "2.0", "method": method, "params": params });
        self.send_raw(message.to_string().as_bytes());
    }

    fn receive(&self, begun: Instant) -> Value {
        let left = PATIENCE.saturating_sub(begun.elapsed());
        self.messages.recv_timeout(left).expect("the server answers")
    }

    /// Sends a request and returns the whole answer.
    pub fn exchange(&mut self, method: &str, params: &Value) -> Value {
        self.next += 1;
        let id = self.next;
        let message = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
        self.send_raw(message.to_string().as_bytes());
        let begun = Instant::now();
        loop {
            let message = self.receive(begun);
            if message["id"] == id {
                return message;
            }
            self.notes.push(message);
        }
    }

    /// Sends a request and returns its result.
    pub fn ask(&mut self, method: &str, params: &Value) -> Value {
        let answer = self.exchange(method, params);
        assert!(answer.get("error").is_none(), "{method}: {answer}");
        answer["result"].clone()
    }

    /// Sends a request. Returns whether it failed with a reason.
    pub fn fail(&mut self, method: &str, params: &Value) -> bool {
        let answer = self.exchange(method, params);
        answer["error"]["message"].as_str().is_some_and(|why| !why.is_empty())
    }

    pub fn open(&mut self, uri: &str, text: &str) {
        self.notes.clear();
        let document = json!({ "uri": uri, "languageId": "vcl", "version": 1, "text": text });
        self.note("textDocument/didOpen", &json!({ "textDocument": document }));
    }

    pub fn change(&mut self, uri: &str, text: &str) {
        self.notes.clear();
        self.versions += 1;
        let params = json!({
            "textDocument": { "uri": uri, "version": self.versions + 1 },
            "contentChanges": [{ "text": text }],
        });
        self.note("textDocument/didChange", &params);
    }

    /// Waits for the diagnostics of a file after the last change.
    pub fn diagnostics(&mut self, uri: &str) -> Vec<Value> {
        let begun = Instant::now();
        let is_it = |message: &Value| {
            message["method"] == "textDocument/publishDiagnostics" && message["params"]["uri"] == uri
        };
        let known = self.notes.iter().position(is_it);
        let mut found = known.map(|at| self.notes.swap_remove(at));
        while found.is_none() {
            let message = self.receive(begun);
            if is_it(&message) {
                found = Some(message);
            } else {
                self.notes.push(message);
            }
        }
        let found = found.unwrap_or_default();
        found["params"]["diagnostics"].as_array().cloned().unwrap_or_default()
    }

    /// Ends the server in order.
    pub fn end(mut self) {
        assert_eq!(self.ask("shutdown", &Value::Null), Value::Null);
        self.note("exit", &Value::Null);
        let code = self.wait_for_end();
        assert_eq!(code, Some(0));
    }

    pub fn wait_for_end(&mut self) -> Option<i32> {
        self.input = None;
        let begun = Instant::now();
        loop {
            if let Some(status) = self.server.try_wait().expect("the server is a child") {
                return status.code();
            }
            assert!(begun.elapsed() < PATIENCE, "the server does not end");
            thread::sleep(Duration::from_millis(5));
        }
    }
}

fn read(output: &mut impl BufRead) -> Option<Value> {
    let mut length = 0;
    loop {
        let mut line = String::new();
        if output.read_line(&mut line).ok()? == 0 {
            return None;
        }
        match line.trim_end() {
            "" => break,
            line => length = line.strip_prefix("Content-Length: ")?.parse().ok()?,
        }
    }
    let mut body = vec![0; length];
    output.read_exact(&mut body).ok()?;
    serde_json::from_slice(&body).ok()
}
