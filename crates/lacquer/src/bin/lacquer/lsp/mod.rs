//! `lacquer lsp`: a language server for VCL on standard input and output.
//!
//! The protocol is small enough that a library and its asynchronous runtime would cost more than they save: messages
//! arrive one after the other, and each answer takes milliseconds. Diagnostics need the whole program, so they are
//! computed when the editor is quiet for a moment.

mod answers;
mod transport;
mod values;
mod workspace;

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, BufReader};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use lacquer_tools::Offline;
use lacquer_tools::editor::Encoding;
use lacquer_vcl::{Diagnostic, Options};
use serde_json::{Value, json};

use self::answers::Answers;
use self::transport::{
    INVALID_REQUEST, METHOD_NOT_FOUND, NOT_INITIALIZED, PARSE_ERROR, REQUEST_FAILED, error, notification,
    result,
};
use self::values::{diagnostic, path_of, uri_of};
use self::workspace::Workspace;
use crate::args::Values;
use crate::failure::Failure;

/// The time without messages after which diagnostics are computed, and the longest time without new ones.
const QUIET: Duration = Duration::from_millis(150);
const LATEST: Duration = Duration::from_secs(1);
/// Default of the parameter `vcl_path`.
const VCL_PATH: &str = "/etc/varnish:/usr/share/varnish/vcl";
/// Maximum number of errors of a program.
const MAX_ERRORS: usize = 50;

pub fn run(values: &Values) -> Result<ExitCode, Failure> {
    let vcl_path = values.many("p").iter().find_map(|param| param.strip_prefix("vcl_path="));
    let workspace = Workspace::new(vcl_path.unwrap_or(VCL_PATH));
    let (sender, messages) = mpsc::channel();
    std::thread::spawn(move || {
        let mut input = BufReader::new(io::stdin());
        // The end of the input, or of its framing, ends the server.
        while let Ok(Some(message)) = transport::read(&mut input) {
            if sender.send(message).is_err() {
                break;
            }
        }
    });
    let mut server = Server::new(workspace, values);
    let ended = server.serve(&messages);
    // The editor has closed its end if that failed.
    Ok(if ended.unwrap_or(false) { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The state of the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    New,
    Running,
    ShutDown,
}

struct Server {
    stage: Stage,
    encoding: Encoding,
    workspace: Workspace,
    storages: Vec<String>,
    labels: Vec<String>,
    /// The files that have changed since diagnostics were computed, and when the first one did.
    changed: BTreeSet<String>,
    changed_at: Option<Instant>,
    /// For each program, the files with diagnostics.
    reported: BTreeMap<String, BTreeMap<String, Vec<Value>>>,
}

impl Server {
    fn new(workspace: Workspace, values: &Values) -> Server {
        let usual = ["s0", "Transient"].map(str::to_owned);
        Server {
            stage: Stage::New,
            encoding: Encoding::Utf16,
            workspace,
            storages: [&usual, values.many("storage")].concat(),
            labels: values.many("label").to_vec(),
            changed: BTreeSet::new(),
            changed_at: None,
            reported: BTreeMap::new(),
        }
    }

    /// Serves until the editor ends. Returns whether it has announced that.
    fn serve(&mut self, messages: &Receiver<Vec<u8>>) -> io::Result<bool> {
        loop {
            let next = match self.changed_at {
                Some(at) if at.elapsed() > LATEST => Err(RecvTimeoutError::Timeout),
                Some(_) => messages.recv_timeout(QUIET),
                None => messages.recv().map_err(|_| RecvTimeoutError::Disconnected),
            };
            match next {
                Ok(message) => {
                    if self.take(&message)? {
                        return Ok(self.stage == Stage::ShutDown);
                    }
                }
                Err(RecvTimeoutError::Timeout) => self.diagnose()?,
                Err(RecvTimeoutError::Disconnected) => return Ok(self.stage == Stage::ShutDown),
            }
        }
    }

    fn send(message: &Value) -> io::Result<()> {
        transport::write(&mut io::stdout().lock(), message)
    }

    /// Handles a message. Returns whether it ends the server.
    fn take(&mut self, message: &[u8]) -> io::Result<bool> {
        let message: Value = match serde_json::from_slice(message) {
            Ok(message) => message,
            Err(why) => {
                Server::send(&error(&Value::Null, PARSE_ERROR, &why.to_string()))?;
                return Ok(false);
            }
        };
        let Some(method) = message["method"].as_str() else {
            // A response of the editor has no method.
            if message.get("result").is_none() && message.get("error").is_none() {
                Server::send(&error(&message["id"], INVALID_REQUEST, "the message has no method"))?;
            }
            return Ok(false);
        };
        let params = &message["params"];
        match message.get("id") {
            Some(id) => {
                let answer = match self.answer(method, params) {
                    Ok(value) => result(id, &value),
                    Err((code, why)) => error(id, code, &why),
                };
                Server::send(&answer)?;
                Ok(false)
            }
            None => {
                self.note(method, params);
                Ok(method == "exit")
            }
        }
    }

    fn answer(&mut self, method: &str, params: &Value) -> Result<Value, (i32, String)> {
        match (self.stage, method) {
            (Stage::New, "initialize") => return Ok(self.initialize(params)),
            (Stage::New, _) => return Err((NOT_INITIALIZED, "the first request is initialize".to_owned())),
            (Stage::ShutDown, _) => return Err((INVALID_REQUEST, "the server is shut down".to_owned())),
            (Stage::Running, "shutdown") => {
                self.stage = Stage::ShutDown;
                return Ok(Value::Null);
            }
            (Stage::Running, _) => {}
        }
        let answers = Answers { workspace: &self.workspace, encoding: self.encoding };
        let failed = |why: String| (REQUEST_FAILED, why);
        let found = match method {
            "textDocument/hover" => answers.hover(params),
            "textDocument/completion" => answers.completion(params),
            "textDocument/definition" => answers.definition(params),
            "textDocument/references" => answers.references(params),
            "textDocument/documentSymbol" => answers.symbols(params),
            "textDocument/prepareRename" => Some(answers.prepare_rename(params).map_err(failed)?),
            "textDocument/rename" => Some(answers.rename(params).map_err(failed)?),
            "textDocument/formatting" => Some(answers.formatting(params).map_err(failed)?),
            _ => return Err((METHOD_NOT_FOUND, format!("there is no method {method}"))),
        };
        Ok(found.unwrap_or(Value::Null))
    }

    fn initialize(&mut self, params: &Value) -> Value {
        self.stage = Stage::Running;
        let encodings = params["capabilities"]["general"]["positionEncodings"].as_array();
        if encodings.is_some_and(|all| all.iter().any(|encoding| encoding == "utf-8")) {
            self.encoding = Encoding::Utf8;
        }
        let folders = params["workspaceFolders"].as_array().into_iter().flatten();
        let mut paths: Vec<String> = folders.filter_map(|folder| path_of(folder["uri"].as_str()?)).collect();
        if paths.is_empty() {
            paths.extend(params["rootUri"].as_str().and_then(path_of));
        }
        self.workspace.set_folders(paths.into_iter().map(PathBuf::from).collect());
        let encoding = if self.encoding == Encoding::Utf8 { "utf-8" } else { "utf-16" };
        json!({
            "capabilities": {
                "positionEncoding": encoding,
                "textDocumentSync": { "openClose": true, "change": 1, "save": true },
                "hoverProvider": true,
                "completionProvider": { "triggerCharacters": [".", " ", "("] },
                "definitionProvider": true,
                "referencesProvider": true,
                "renameProvider": { "prepareProvider": true },
                "documentFormattingProvider": true,
                "documentSymbolProvider": true,
            },
            "serverInfo": { "name": "lacquer", "version": env!("CARGO_PKG_VERSION") },
        })
    }

    fn note(&mut self, method: &str, params: &Value) {
        if self.stage != Stage::Running {
            return;
        }
        let document = &params["textDocument"];
        let path = document["uri"].as_str().and_then(path_of);
        match (method, path) {
            ("textDocument/didOpen", Some(path)) => {
                let text = document["text"].as_str().unwrap_or_default();
                self.workspace.open(&path, text.to_owned());
                self.change(path);
            }
            ("textDocument/didChange", Some(path)) => {
                let mut changes = params["contentChanges"].as_array().into_iter().flatten();
                if let Some(text) =
                    changes.rfind(|change| change["text"].is_string()).and_then(|c| c["text"].as_str())
                {
                    self.workspace.open(&path, text.to_owned());
                    self.change(path);
                }
            }
            ("textDocument/didClose", Some(path)) => {
                self.workspace.close(&path);
                self.change(path);
            }
            ("textDocument/didSave", Some(path)) => {
                self.workspace.forget_files();
                self.change(path);
            }
            ("workspace/didChangeWatchedFiles", _) => self.workspace.forget_files(),
            _ => {}
        }
    }

    fn change(&mut self, path: String) {
        self.changed.insert(path);
        self.changed_at.get_or_insert_with(Instant::now);
    }

    /// Compiles the programs of the changed files, and sends their diagnostics.
    fn diagnose(&mut self) -> io::Result<()> {
        self.changed_at = None;
        let mut roots = BTreeSet::new();
        let mut to_send = BTreeSet::new();
        for path in std::mem::take(&mut self.changed) {
            let of_path = self.workspace.roots(&path);
            // A file that has become a part of a program is none of its own.
            if !of_path.contains(&path)
                && let Some(old) = self.reported.remove(&path)
            {
                to_send.extend(old.into_keys());
            }
            roots.extend(of_path);
            to_send.insert(path);
        }
        for root in roots {
            let files = self.workspace.program(&root);
            let is_seen = files.iter().any(|file| self.workspace.is_open(file));
            let found = if is_seen { self.compile(&root) } else { BTreeMap::new() };
            to_send.extend(found.keys().cloned());
            if let Some(old) = self.reported.insert(root, found) {
                to_send.extend(old.into_keys());
            }
        }
        self.reported.retain(|_, files| !files.is_empty());
        for path in to_send {
            let mut all: Vec<Value> = Vec::new();
            for found in self.reported.values().filter_map(|files| files.get(&path)).flatten() {
                if !all.contains(found) {
                    all.push(found.clone());
                }
            }
            let params = json!({ "uri": uri_of(&path), "diagnostics": all });
            Server::send(&notification("textDocument/publishDiagnostics", &params))?;
        }
        Ok(())
    }

    /// Returns the diagnostics of a program by file.
    fn compile(&self, root: &str) -> BTreeMap<String, Vec<Value>> {
        let mut found: BTreeMap<String, Vec<Value>> = BTreeMap::new();
        let Some(document) = self.workspace.document(root) else { return found };
        let mut options = Options::new(lacquer_vmods::catalogue(), &self.workspace, &Offline);
        options.max_errors = MAX_ERRORS;
        options.strict_hosts = false;
        (options.storages, options.labels) = (&self.storages, &self.labels);
        options.vcl_path = self.workspace.vcl_path();
        // A part of a program that is not known has no version, and uses names that it does not declare.
        if !document.outline.has_version {
            return self.check_part(root, &document.text);
        }
        let diagnostics = lacquer_tools::diagnose(root, document.text.as_bytes(), &options);
        for one in &diagnostics {
            let file = one.file().unwrap_or(root).to_owned();
            found.entry(file).or_default().push(diagnostic(one, self.encoding));
        }
        found
    }

    /// Checks the grammar of a part of a program.
    fn check_part(&self, path: &str, text: &str) -> BTreeMap<String, Vec<Value>> {
        let error: Option<Box<Diagnostic>> = lacquer_tools::format(path, text.as_bytes()).err();
        let found = error.map(|error| (path.to_owned(), vec![diagnostic(&error, self.encoding)]));
        found.into_iter().collect()
    }
}
