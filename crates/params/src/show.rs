//! `param.show` in its three forms, and the reference documentation of the parameters.

use std::fmt::Write;

use crate::rows;
use crate::set::Entry;
use crate::value;
use crate::{ALIASES, Alias, Kind, ParamSet, SetError, flags};

const MARGIN: usize = 8;
const WRAP_AT: usize = 72;
const TABLE_INDENT: usize = 3;

/// Notes below the documentation of a parameter with the flag.
const NOTES: &[(u16, &str)] = &[
    (
        flags::OBJ_STICKY,
        "NB: This parameter is evaluated when an object is created. To apply a change to existing objects, \
         restart or ban everything.",
    ),
    (flags::DELAYED_EFFECT, "NB: This parameter may take a while to take full effect."),
    (
        flags::EXPERIMENTAL,
        "NB: This parameter is experimental: the effects of a change are not known well, and its default \
         may change. Reports are welcome.",
    ),
    (flags::MUST_RELOAD, "NB: This parameter takes effect when the VCL programs are loaded again."),
    (flags::MUST_RESTART, "NB: This parameter takes effect when the worker is restarted."),
    (flags::WIZARD, "NB: Do not change this parameter unless a developer recommends it."),
    (flags::BUILD_OPTIONS, "NB: The default of this parameter depends on the build of the program."),
];
const TIMEOUT_NOTE: &str = "NB: This parameter can be disabled with the value \"never\".";
const PROTECTED_NOTE: &str = "NB: This parameter is protected and cannot be changed.";
const MISSING_NOTE: &str = "NB: This parameter depends on a feature which is not available on this platform.";

const UNUSED_NOTE: &str = "NB: Lacquer checks and stores this parameter, and nothing uses it.";

/// Parameters that have no effect, because they concern threads, compilers or system calls that Lacquer does not use.
const UNUSED: &[&str] = &[
    "ban_lurker_holdoff",
    "cc_command",
    "cc_warnings",
    "clock_step",
    "critbit_cooloff",
    "experimental",
    "gzip_memlevel",
    "http1_iovs",
    "pool_sess",
    "sigsegv_handler",
    "ssl_buffer",
    "sslbuf_pool",
    "tcp_fastopen",
    "thread_pool_add_delay",
    "thread_pool_destroy_delay",
    "thread_pool_fail_delay",
    "thread_pool_reserve",
    "thread_pool_stack",
    "thread_pool_timeout",
    "thread_pool_watchdog",
    "thread_stats_rate",
    "vmod_path",
    "vsm_free_cooldown",
];

/// Which parameters to list, and in which form.
#[derive(Clone, Debug, Default)]
pub struct Listing<'a> {
    /// Lists a single parameter.
    pub name: Option<&'a str>,
    /// Lists bounds and documentation too.
    pub long: bool,
    /// Lists only parameters that differ from their default.
    pub changed: bool,
    /// Writes JSON.
    pub json: bool,
}

impl<'a> Listing<'a> {
    /// Parses the arguments of `param.show`.
    pub fn parse(args: &'a [String]) -> Result<Listing<'a>, SetError> {
        let mut listing = Listing { json: args.iter().any(|a| a == "-j"), ..Listing::default() };
        for arg in args {
            match arg.as_str() {
                "-j" => {}
                "-l" if listing.json => {
                    let text = "-l not permitted with param.show -j".to_owned();
                    return Err(SetError { status: 106, text });
                }
                "-l" => listing.long = true,
                "changed" => listing.changed = true,
                name if listing.name.is_none() => listing.name = Some(name),
                _ => return Err(SetError { status: 105, text: "Too many parameters".to_owned() }),
            }
        }
        listing.long |= listing.name.is_some();
        Ok(listing)
    }
}

/// A row of the listing: a parameter under its name or under an alias.
struct Row<'a> {
    name: &'a str,
    alias: Option<&'a Alias>,
    entry: &'a Entry,
    text: String,
}

impl ParamSet {
    fn row<'a>(&'a self, name: &'a str, alias: Option<&'a Alias>, entry: &'a Entry) -> Row<'a> {
        Row { name, alias, entry, text: self.value_text(entry.spec.name).unwrap_or_default() }
    }

    fn rows<'a>(&'a self, listing: &Listing<'a>) -> Result<Vec<Row<'a>>, SetError> {
        let mut rows: Vec<Row<'a>> = match listing.name {
            None => self.entries().iter().map(|entry| self.row(entry.spec.name, None, entry)).collect(),
            Some(name) => {
                let alias = ParamSet::alias(name);
                let Some(entry) = self.entry(alias.map_or(name, |alias| alias.target)) else {
                    return Err(SetError::unknown(name, &format!("\"{name}\".")));
                };
                vec![self.row(name, alias, entry)]
            }
        };
        if listing.changed {
            rows.retain(|row| row.entry.default != row.text);
        }
        Ok(rows)
    }

    /// Returns the text of `param.show`; for JSON, the elements of the reply's envelope.
    pub fn show(&self, listing: &Listing<'_>) -> Result<String, SetError> {
        let rows = self.rows(listing)?;
        if listing.json {
            let objects: Vec<String> = rows.iter().map(|row| self.json_row(row)).collect();
            return Ok(objects.join(",\n"));
        }
        let width = self.entries().iter().map(|e| e.spec.name.len()).max().unwrap_or(0) + 1;
        let mut out = String::new();
        for row in &rows {
            if listing.long {
                long_row(&mut out, row);
            } else {
                let _ = writeln!(out, "{:width$}{}", row.name, summary(row, "-"));
            }
        }
        Ok(out)
    }

    fn json_row(&self, row: &Row<'_>) -> String {
        let spec = row.entry.spec;
        let string = |text: &str| serde_json::Value::from(text).to_string();
        let mut out = format!("{{\n  \"name\": {},\n", string(row.name));
        if let Some(alias) = row.alias {
            let _ = writeln!(out, "  \"alias\": {},", string(alias.target));
        }
        if spec.has(flags::NOT_IMPLEMENTED) {
            out.push_str("  \"implemented\": false\n}");
            return out;
        }
        let literal =
            self.values().slot(spec.name).map_or_else(String::new, |slot| value::json(spec.kind, &slot));
        let _ = writeln!(out, "  \"implemented\": true,\n  \"value\": {literal},");
        let described = describe(row);
        for (key, text) in [
            ("units", Some(spec.units).filter(|u| !u.is_empty())),
            ("default", Some(row.entry.default.as_str())),
            ("minimum", row.entry.min.as_deref()),
            ("maximum", row.entry.max.as_deref()),
            ("description", Some(described.as_str())),
        ] {
            if let Some(text) = text {
                let _ = writeln!(out, "  \"{key}\": {},", string(text));
            }
        }
        let names: Vec<String> =
            flag_names(row.entry, JSON_FLAGS).map(|flag| format!("    \"{flag}\"")).collect();
        if names.is_empty() {
            out.push_str("  \"flags\": []\n}");
        } else {
            let _ = write!(out, "  \"flags\": [\n{}\n  ]\n}}", names.join(",\n"));
        }
        out
    }

    /// Returns the reference documentation of all parameters as reStructuredText (`-x parameter`).
    pub fn document(&self) -> String {
        let mut out = String::from("\n.. The following is the autogenerated output from -x parameter\n\n");
        for entry in self.entries() {
            let row = self.row(entry.spec.name, None, entry);
            document_row(&mut out, row.name, &row, &describe(&row));
        }
        for alias in ALIASES.iter().filter(|alias| alias.bit.is_some()) {
            let _ = writeln!(
                out,
                ".. _ref_param_{0}:\n\n{0}\n{1}\n\n{2}\n",
                alias.name,
                "~".repeat(alias.name.len()),
                alias.prose
            );
        }
        out
    }
}

/// Returns the documentation, and for bit sets the table of bits.
fn describe(row: &Row<'_>) -> String {
    if let Some(alias) = row.alias {
        return alias.prose.to_owned();
    }
    let spec = row.entry.spec;
    let mut text = spec.prose.to_owned();
    let values = crate::Params::blank();
    if let Some(crate::Slot::Bits(bits)) = values.slot(spec.name) {
        for (name, prose) in bits.names().iter().zip(bits.prose()) {
            let _ = write!(text, "\n\t{name}\t{prose}");
        }
    }
    text
}

const JSON_FLAGS: &[(u16, &str)] = &[
    (flags::OBJ_STICKY, "obj_sticky"),
    (flags::DELAYED_EFFECT, "delayed_effect"),
    (flags::EXPERIMENTAL, "experimental"),
    (flags::MUST_RELOAD, "must_reload"),
    (flags::MUST_RESTART, "must_restart"),
    (flags::WIZARD, "wizard"),
    (flags::BUILD_OPTIONS, "build_options"),
];

const DOC_FLAGS: &[(u16, &str)] = &[
    (flags::DELAYED_EFFECT, "delayed"),
    (flags::MUST_RESTART, "must_restart"),
    (flags::MUST_RELOAD, "must_reload"),
    (flags::EXPERIMENTAL, "experimental"),
    (flags::WIZARD, "wizard"),
    (flags::OBJ_STICKY, "obj_sticky"),
];

fn flag_names<'a>(entry: &'a Entry, names: &'a [(u16, &str)]) -> impl Iterator<Item = &'a str> {
    let own = names.iter().filter(|(bit, _)| entry.spec.has(*bit)).map(|(_, name)| *name);
    let is_json = std::ptr::eq(names, JSON_FLAGS);
    own.chain((is_json && entry.protected).then_some("protected"))
}

fn summary(row: &Row<'_>, missing: &str) -> String {
    if row.entry.spec.has(flags::NOT_IMPLEMENTED) {
        return missing.to_owned();
    }
    let mut text = row.text.clone();
    if !row.entry.spec.units.is_empty() {
        let _ = write!(text, " [{}]", row.entry.spec.units);
    }
    if row.alias.is_none() && row.entry.default == row.text {
        text.push_str(" (default)");
    }
    text
}

fn long_row(out: &mut String, row: &Row<'_>) {
    let (spec, entry) = (row.entry.spec, row.entry);
    let indent = " ".repeat(MARGIN);
    let _ = writeln!(out, "{}", row.name);
    let mut line = |label: &str, text: &str| {
        let _ = writeln!(out, "{indent}{label}{text}");
    };
    let missing = spec.has(flags::NOT_IMPLEMENTED);
    let label = if missing { "" } else { "Value is: " };
    line(label, &summary(row, "Not available"));
    if let Some(alias) = row.alias {
        line("Alias of: ", alias.target);
    }
    if !missing && row.alias.is_none() {
        if entry.default != row.text {
            line("Default is: ", &entry.default);
        }
        if let Some(min) = &entry.min {
            line("Minimum is: ", min);
        }
        if let Some(max) = &entry.max {
            line("Maximum is: ", max);
        }
    }
    out.push('\n');
    if missing {
        wrap(out, MISSING_NOTE);
    } else {
        wrap(out, &describe(row));
        let notes = NOTES.iter().filter(|(bit, _)| spec.has(*bit)).map(|(_, note)| *note);
        let timeout = (spec.kind == Kind::Timeout).then_some(TIMEOUT_NOTE);
        let unused = UNUSED.contains(&spec.name).then_some(UNUSED_NOTE);
        for note in
            unused.into_iter().chain(timeout).chain(notes).chain(entry.protected.then_some(PROTECTED_NOTE))
        {
            out.push_str("\n\n");
            wrap(out, note);
        }
    }
    out.push_str("\n\n");
}

fn document_row(out: &mut String, name: &str, row: &Row<'_>, prose: &str) {
    let (spec, entry) = (row.entry.spec, row.entry);
    let _ = write!(out, ".. _ref_param_{name}:\n\n{name}\n{}\n", "~".repeat(name.len()));
    if spec.has(flags::PLATFORM_DEPENDENT) {
        out.push_str("\nNB: This parameter is not available on all platforms.\n\n");
    }
    if !spec.units.is_empty() {
        let _ = writeln!(out, "\t* Units: {}", spec.units);
    }
    for (label, text) in [
        ("Default", Some(spec.default_reason.unwrap_or(&entry.default))),
        ("Minimum", spec.min_reason.or(entry.min.as_deref())),
        ("Maximum", spec.max_reason.or(entry.max.as_deref())),
    ] {
        if let Some(text) = text {
            let _ = writeln!(out, "\t* {label}: {text}");
        }
    }
    let timeout = (spec.kind == Kind::Timeout).then_some("timeout");
    let names: Vec<&str> = timeout.into_iter().chain(flag_names(entry, DOC_FLAGS)).collect();
    if !names.is_empty() {
        let _ = writeln!(out, "\t* Flags: {}", names.join(", "));
    }
    out.push('\n');
    for line in prose.lines() {
        match line.strip_prefix('\t').and_then(|l| l.split_once('\t')) {
            Some((term, meaning)) => {
                let _ = write!(out, "\n\t*{term}*\n\t\t{meaning}\n");
            }
            None => {
                let _ = writeln!(out, "{line}");
            }
        }
    }
    out.push('\n');
}

/// Wraps lines at the right margin. Lines with two tabs become rows of a table with two columns.
fn wrap(out: &mut String, text: &str) {
    let terms = text.lines().filter_map(|line| line.strip_prefix('\t')?.split_once('\t'));
    let column = terms.map(|(term, _)| term.len() + 2).max().unwrap_or(0).max(20);
    for (number, line) in text.split('\n').enumerate() {
        if number > 0 {
            out.push('\n');
        }
        if line.is_empty() {
            continue;
        }
        let (start, first, rest) = match line.strip_prefix('\t').and_then(|l| l.split_once('\t')) {
            Some((term, meaning)) => {
                let left = MARGIN + TABLE_INDENT;
                (left + column, format!("{:left$}{term:column$}", ""), meaning)
            }
            None => (MARGIN, " ".repeat(MARGIN), line),
        };
        let gap = format!("\n{:start$}", "");
        let _ = write!(out, "{first}{}", rows(rest, (WRAP_AT - 1).saturating_sub(start)).join(&gap));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SPECS;

    fn show(set: &ParamSet, args: &[&str]) -> Result<String, SetError> {
        let args: Vec<String> = args.iter().map(|a| (*a).to_owned()).collect();
        set.show(&Listing::parse(&args)?)
    }

    #[test]
    fn changed_lists_only_changed_parameters() {
        let mut set = ParamSet::new();
        assert_eq!(show(&set, &["changed"]).unwrap(), "");
        set.set("default_ttl", "1m").unwrap();
        assert_eq!(show(&set, &["changed"]).unwrap(), "default_ttl                   60.000 [seconds]\n");
        assert_eq!(show(&set, &[]).unwrap().lines().count(), SPECS.len());
        assert!(show(&set, &[]).unwrap().starts_with("accept_filter                 -\n"));
    }

    #[test]
    fn the_long_form_has_bounds_and_documentation() {
        let set = ParamSet::new();
        let text = show(&set, &["first_byte_timeout"]).unwrap();
        assert!(text.starts_with("first_byte_timeout\n        Value is: 60.000 [seconds] (default)\n        Minimum is: 0.000\n\n        Maximum time"), "{text}");
        assert!(text.contains("\"never\"."), "{text}");
        assert!(show(&set, &["-l"]).unwrap().lines().all(|l| l.len() <= WRAP_AT + 20 || l.contains(" is: ")));
        assert!(show(&set, &["vcc_err_unref"]).unwrap().contains("        Alias of: vcc_feature\n"));
    }

    #[test]
    fn parameters_without_effect_have_a_note() {
        let set = ParamSet::new();
        let has_note = |name: &str| {
            let words: Vec<String> =
                show(&set, &[name]).unwrap().split_whitespace().map(str::to_owned).collect();
            words.join(" ").contains(UNUSED_NOTE)
        };
        for name in UNUSED {
            assert!(has_note(name), "{name}");
        }
        assert!(!has_note("default_ttl"));
    }

    #[test]
    fn the_json_form_can_be_parsed() {
        let mut set = ParamSet::new();
        set.set("send_timeout", "never").unwrap();
        let text = format!("[{}]", show(&set, &["-j"]).unwrap());
        let parsed: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(parsed.as_array().unwrap().len(), SPECS.len());
        let one: serde_json::Value = serde_json::from_str(&show(&set, &["-j", "pool_req"]).unwrap()).unwrap();
        assert_eq!(one["value"]["max_pool"], 100);
        assert!(show(&set, &["-j", "feature"]).unwrap().contains("\"value\": \"none,"));
    }

    #[test]
    fn bad_arguments_are_refused() {
        let set = ParamSet::new();
        let status = |args: &[&str]| show(&set, args).unwrap_err().status;
        assert_eq!(status(&["nope"]), 106);
        assert_eq!(status(&["debug", "debug"]), 105);
        assert_eq!(status(&["-j", "debug", "debug"]), 105);
        assert_eq!(status(&["-j", "-l"]), 106);
    }
}
