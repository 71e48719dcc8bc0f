//! `lacquer vcl`: loads VCLs into a daemon, lists them, switches among them and removes them.

use std::path::Path;
use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::json;

use crate::args::Values;
use crate::failure::Failure;
use crate::format::read;
use crate::remote;

pub fn load(values: &Values) -> Result<ExitCode, Failure> {
    let file = values.operand().unwrap_or_default();
    let text = read(file)?;
    let name = values.one("as").map_or_else(|| name_of(file), str::to_owned);
    let mut management = remote::management(values)?;
    // Another machine has other files: it gets the text. A text from standard input has no file.
    let compiled = if values.one("address").is_some() || file == "-" {
        let text = String::from_utf8(text).map_err(|_| {
            Failure::new(format_args!("{file} is not UTF-8"))
                .hint("a VCL that is sent to another machine must be")
        })?;
        management.words(&["vcl.inline", &name, &text])
    } else {
        let path = Path::new(file).canonicalize();
        let path = path.map_err(|error| Failure::new(format_args!("{file}: {error}")))?;
        management.words(&["vcl.load", &name, &path.to_string_lossy()])
    };
    let compiled = compiled.map_err(Failure::of)?;
    if values.has("use") {
        management.words(&["vcl.use", &name]).map_err(Failure::of)?;
    }
    let (is_used, how) = if values.has("use") { (true, "loaded and in use") } else { (false, "loaded") };
    let hint =
        if is_used { String::new() } else { format!("; lacquer vcl use {name} lets new requests use it") };
    let json = json!({"name": name, "used": is_used, "messages": compiled.trim_end()});
    Ok(remote::report(values, &json, &format!("{}\n{how}: {name}{hint}", compiled.trim_end())))
}

/// Returns a name that no loaded VCL has.
fn name_of(file: &str) -> String {
    let stem =
        Path::new(file).file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
    let mut name: String =
        stem.chars().map(|c| if c.is_ascii_alphanumeric() || c == '-' { c } else { '_' }).take(60).collect();
    if !name.starts_with(|c: char| c.is_ascii_alphabetic()) {
        name.insert_str(0, "vcl_");
    }
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis());
    format!("{name}_{now}")
}

pub fn activate(values: &Values) -> Result<ExitCode, Failure> {
    let name = values.operand().unwrap_or_default();
    remote::management(values)?.words(&["vcl.use", name]).map_err(Failure::of)?;
    Ok(remote::report(values, &json!({"name": name, "used": true}), &format!("in use: {name}")))
}

pub fn list(values: &Values) -> Result<ExitCode, Failure> {
    remote::show_reply(values, "vcl.list", &[])
}

pub fn discard(values: &Values) -> Result<ExitCode, Failure> {
    let mut words = vec!["vcl.discard"];
    words.extend(values.operands.iter().map(String::as_str));
    remote::management(values)?.words(&words).map_err(Failure::of)?;
    let names = &values.operands;
    Ok(remote::report(values, &json!({"discarded": names}), &format!("discarded {}", names.join(" "))))
}

#[cfg(test)]
mod tests {
    use super::name_of;

    #[test]
    fn names_follow_from_files() {
        assert!(name_of("/etc/varnish/my site.vcl").starts_with("my_site_1"));
        assert!(name_of("-").starts_with("vcl_-_1"));
    }
}
