//! The commands `vcl.*`. Each checks what the catalogue allows, and keeps the catalogue and the running worker in
//! step.

use lacquer_cli::collector::Command;
use lacquer_cli::link::{Request, VclState};
use lacquer_cli::status;
use lacquer_vcl::Text;
use std::fmt::Write as _;

use super::catalogue::{CannotDiscard, Entry};
use super::compilation::Compilation;
use super::compile::{CompileContext, Input};
use crate::complain::Level;
use crate::manager::{Manager, Reply};
use crate::options::named::invalid_in_name;

/// The largest number of dependents that an error text lists.
const LISTED_DEPENDENTS: usize = 5;

type Done = Result<String, Reply>;

fn refuse<T>(status: u16, text: impl Into<Text>) -> Result<T, Reply> {
    Err(Reply { status, text: text.into() })
}

fn check_name(name: &str) -> Result<(), Reply> {
    match invalid_in_name(name) {
        None => Ok(()),
        Some(c) => {
            let mut utf8 = [0; 4];
            let first = c.encode_utf8(&mut utf8).as_bytes()[0];
            let shown = match c {
                '!'..='~' => format!("('{c}')"),
                _ => format!("(0x{first:02x})"),
            };
            refuse(status::PARAM, format!("Illegal character in VCL name {shown}"))
        }
    }
}

fn parse_state(word: &str) -> Result<VclState, Reply> {
    match word {
        "auto" => Ok(VclState::Auto),
        "cold" => Ok(VclState::Cold),
        "warm" => Ok(VclState::Warm),
        _ => refuse(status::PARAM, "State must be one of auto, cold or warm."),
    }
}

impl Manager {
    fn known(&self, name: &str) -> Result<&Entry, Reply> {
        check_name(name)?;
        match self.catalogue.get(name) {
            Some(entry) => Ok(entry),
            None => refuse(status::PARAM, format!("No VCL named {name} known\n")),
        }
    }

    fn compile_context(&self) -> CompileContext {
        let params = self.params.values();
        CompileContext {
            vcl_path: params.vcl_path.clone(),
            labels: self.catalogue.labels().map(str::to_owned).collect(),
            storages: self.storages.iter().map(|storage| storage.name().to_owned()).collect(),
            features: params.vcc_feature,
            strict_hosts: params.dns_strict,
            needs_41: self.listeners.any_unix(),
            jail: self.jail.clone(),
        }
    }

    /// Compiles a program, adds it and loads it into the worker.
    pub(crate) fn new_vcl(&mut self, name: &str, text: Input) -> Done {
        let compilation = self.begin_compilation(name, text, None)?;
        self.add_compiled(compilation)
    }

    fn begin_compilation(&self, name: &str, text: Input, state: Option<&str>) -> Result<Compilation, Reply> {
        self.may_add(name, text.is_saved())?;
        let state = state.map_or(Ok(VclState::Auto), parse_state)?;
        let begun = Compilation::begin(name, state, text, self.compile_context());
        begun.or_else(|fault| refuse(status::PARAM, fault))
    }

    /// Fails if a program of this name exists, or if no further one is allowed. One that was loaded before an upgrade was
    /// allowed then.
    fn may_add(&self, name: &str, is_saved: bool) -> Result<(), Reply> {
        if self.catalogue.get(name).is_some() {
            return refuse(status::PARAM, format!("Already a VCL named {name}"));
        }
        let params = self.params.values();
        let count = self.catalogue.programs();
        if is_saved || count < params.max_vcl as usize || params.max_vcl_handling != 2 {
            return Ok(());
        }
        let text =
            format!("Too many ({count}) VCLs already loaded\n(See max_vcl and max_vcl_handling parameters)");
        refuse(status::CANT, text)
    }

    /// Waits until a program is compiled, adds it and loads it into the worker.
    fn add_compiled(&mut self, compilation: Compilation) -> Done {
        let (name, state, is_saved) = (compilation.name.clone(), compilation.state, compilation.is_saved);
        let compiled = match compilation.outcome() {
            Ok(compiled) => compiled,
            Err(fault) => return refuse(status::PARAM, fault),
        };
        // The catalogue may have changed meanwhile.
        self.may_add(&name, is_saved)?;
        if let Some(gone) = compiled.labels.iter().find(|label| !self.catalogue.labels().any(|l| l == *label))
        {
            return refuse(status::PARAM, format!("Label {gone} was discarded meanwhile"));
        }
        let mut out = compiled.warnings.clone();
        let program = compiled.program.clone();
        let warm = state != VclState::Cold;
        self.catalogue.add(&name, state, Some(compiled));
        let count = self.catalogue.programs();
        let params = self.params.values();
        if count > params.max_vcl as usize && params.max_vcl_handling == 1 {
            let _ = write!(
                out,
                "{count} VCLs loaded\nRemember to vcl.discard the old/unused VCLs.\n\
                 (See max_vcl and max_vcl_handling parameters)"
            );
        }
        if !self.running() {
            return Ok(out);
        }
        let body = Request::LoadVcl { name: name.clone(), program, state, warm };
        let now = self.uptime();
        let reply = match self.request_success(body) {
            Ok(reply) => reply,
            Err(reply) => {
                self.catalogue.remove(&name, now);
                return refuse(reply.status, format!("{out}{}", reply.text));
            }
        };
        self.catalogue.update_idle_time(&name, now);
        // The worker's warnings follow its first line.
        if let Some((_, warnings)) = reply.text.to_string().split_once('\n') {
            let separator = if out.is_empty() || out.ends_with('\n') { "" } else { "\n" };
            let _ = writeln!(out, "{separator}{warnings}");
        }
        Ok(out)
    }

    /// Starts `vcl.inline` or `vcl.load`.
    pub(crate) fn begin_load(&mut self, words: &[String], command: &Command) -> Result<Compilation, Reply> {
        let name = &words[1];
        check_name(name)?;
        let text = match words[0].as_str() {
            "vcl.inline" => Input::Given { name: "<vcl.inline>".to_owned(), text: command.bytes(2).to_vec() },
            _ if std::str::from_utf8(command.bytes(2)).is_err() => {
                let text = format!("The name of the file is not UTF-8: {}", command.bytes(2).escape_ascii());
                return refuse(status::PARAM, text);
            }
            _ => Input::File(words[2].clone()),
        };
        self.begin_compilation(name, text, words.get(3).map(String::as_str))
    }

    /// Waits until the program is compiled and completes `vcl.inline` or `vcl.load`.
    pub(crate) fn finish_load(&mut self, compilation: Compilation) -> Reply {
        let done = self.add_compiled(compilation).map(|mut out| {
            if !self.running() {
                out.push_str("VCL compiled.\n");
            }
            out
        });
        done.into()
    }

    /// `vcl.use`
    pub(crate) fn vcl_use(&mut self, name: &str) -> Done {
        self.known(name)?;
        if self.catalogue.active() == Some(name) {
            return Ok(String::new());
        }
        self.require_warm(name)?;
        if self.running() {
            self.request_success(Request::UseVcl { name: name.to_owned() })?;
        }
        let now = self.uptime();
        self.catalogue.activate(name, now);
        Ok(format!("VCL '{name}' now active"))
    }

    /// `vcl.state`
    pub(crate) fn vcl_state(&mut self, name: &str, word: &str) -> Done {
        if self.known(name)?.is_label() {
            return refuse(status::PARAM, "Labels are always warm");
        }
        let state = parse_state(word)?;
        if state == VclState::Cold {
            if self.catalogue.dependents(name).next().is_some() {
                return refuse(status::CANT, "A labeled VCL cannot be set cold");
            }
            if self.catalogue.active() == Some(name) {
                return refuse(status::CANT, "Cannot set the active VCL cold.");
            }
        }
        self.set_vcl_state(name, state)?;
        Ok(String::new())
    }

    fn set_vcl_state(&mut self, name: &str, state: VclState) -> Result<(), Reply> {
        let Some(entry) = self.catalogue.get(name) else { return Ok(()) };
        if entry.is_label() || entry.state == state {
            return Ok(());
        }
        let warm = match state {
            _ if self.catalogue.active() == Some(name) => true,
            VclState::Auto => entry.warm,
            other => other == VclState::Warm,
        };
        self.ask_temperature(name, state, warm)
    }

    /// Sets the state and temperature in the worker, and records them when that succeeds.
    fn ask_temperature(&mut self, name: &str, state: VclState, warm: bool) -> Result<(), Reply> {
        if self.running() {
            self.request_success(Request::SetVclState { name: name.to_owned(), state, warm })?;
        }
        let now = self.uptime();
        self.catalogue.set_state(name, state, warm);
        self.catalogue.update_idle_time(name, now);
        Ok(())
    }

    fn require_warm(&mut self, name: &str) -> Result<(), Reply> {
        let Some(entry) = self.catalogue.get(name) else { return Ok(()) };
        match (entry.state, entry.warm) {
            (VclState::Cold, _) => {
                refuse(status::CANT, format!("VCL '{name}' is cold - set to auto or warm first"))
            }
            (_, true) => Ok(()),
            (state, false) => self.ask_temperature(name, state, true),
        }
    }

    /// Makes programs cold that have been idle for `vcl_cooldown`.
    pub(crate) fn cool_vcls(&mut self) {
        let cooldown = self.params.values().vcl_cooldown;
        for name in self.catalogue.idle_longer_than(self.uptime(), cooldown) {
            if let Err(reply) = self.ask_temperature(&name, VclState::Auto, false) {
                let text = format!("VCL '{name}' cannot become cold: {} '{}'", reply.status, reply.text);
                self.complain.report(Level::Error, &text);
                let now = self.uptime();
                self.catalogue.update_idle_time(&name, now);
            }
        }
    }

    /// `vcl.label`
    pub(crate) fn vcl_label(&mut self, label: &str, target: &str) -> Done {
        check_name(label)?;
        let exists = self.catalogue.get(label).is_some();
        if self.catalogue.get(label).is_some_and(|entry| !entry.is_label()) {
            return refuse(status::PARAM, format!("{label} is not a label"));
        }
        if self.known(target)?.is_label() {
            return refuse(status::CANT, "VCL labels cannot point to labels");
        }
        if exists
            && self.catalogue.target(label) != Some(target)
            && let Some(chain) = self.catalogue.path(target, label)
        {
            let text = format!("{chain}Pointing label {label} at {target} would create a loop");
            return refuse(status::PARAM, text);
        }
        self.require_warm(target)?;
        if exists {
            self.require_warm(label)?;
        }
        if self.running() {
            self.request_success(Request::LabelVcl { label: label.to_owned(), target: target.to_owned() })?;
        }
        // A label that the worker refused, or did not confirm, stays as it was.
        if !exists {
            self.catalogue.add(label, VclState::Label, None);
        }
        let now = self.uptime();
        self.catalogue.point(label, target, now);
        Ok(String::new())
    }

    /// `vcl.discard`
    pub(crate) fn vcl_discard(&mut self, patterns: &[String]) -> Done {
        let names = match self.catalogue.to_discard(patterns) {
            Ok(names) => names,
            Err(CannotDiscard::Active(name)) => {
                return refuse(status::CANT, format!("Cannot discard active VCL program {name}\n"));
            }
            Err(CannotDiscard::NoMatch(pattern)) => {
                return refuse(status::PARAM, format!("No VCL name matches {pattern}\n"));
            }
            Err(CannotDiscard::Needed { name, label, by }) => {
                return refuse(status::CANT, needed(&name, label, &by));
            }
        };
        for name in names {
            if self.running() {
                if self.catalogue.get(&name).is_some_and(|entry| !entry.is_label()) {
                    let _ = self.set_vcl_state(&name, VclState::Cold);
                }
                let _ = self.request_success(Request::DiscardVcl { name: name.clone() });
            }
            let now = self.uptime();
            self.catalogue.remove(&name, now);
        }
        Ok(String::new())
    }

    /// `vcl.show`
    pub(crate) fn vcl_show(&self, args: &[String]) -> Result<Text, Reply> {
        let (verbose, args) = match args {
            [flag, rest @ ..] if flag == "-v" => (true, rest),
            _ => (false, args),
        };
        let name = match args {
            [] => self.catalogue.active(),
            [name] => Some(name.as_str()),
            [_, extra, ..] => return refuse(status::PARAM, format!("Too many parameters: '{extra}'")),
        };
        let named = name.and_then(|name| self.catalogue.get(name));
        let program = match named {
            Some(entry) if entry.is_label() => {
                self.catalogue.target(&entry.name).and_then(|target| self.catalogue.get(target))
            }
            other => other,
        };
        let Some(compiled) = program.and_then(|entry| entry.compiled.as_ref()) else {
            return refuse(status::PARAM, format!("No VCL named '{}'", name.unwrap_or_default()));
        };
        if !verbose {
            return Ok(compiled.sources.first().map(|(_, text)| text.clone()).unwrap_or_default());
        }
        let mut out = Vec::new();
        for (at, (name, text)) in compiled.sources.iter().enumerate() {
            out.extend_from_slice(format!("// VCL.SHOW {at} {} {name}\n", text.len()).as_bytes());
            out.extend_from_slice(text);
            out.push(b'\n');
        }
        Ok(out.into())
    }
}

fn needed(name: &str, label: bool, by: &[String]) -> String {
    let mut out = if label {
        format!("Cannot discard VCL label {name}, other VCLs depend on it:\n")
    } else {
        format!("Cannot discard labeled VCL program {name}:\n")
    };
    for name in by.iter().take(LISTED_DEPENDENTS) {
        let _ = writeln!(out, "\t{name}");
    }
    if by.len() > LISTED_DEPENDENTS {
        out.push_str("\t[...]");
    }
    out
}
