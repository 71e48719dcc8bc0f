//! The VCL programs of the command line: `-b`, `-f` and `-C`.

use lacquer_params::DebugBits;
use lacquer_vcl::Text;

use crate::complain::print_line;
use crate::fault::{Fault, Outcome};
use crate::listen::is_backend_path;
use crate::manager::{Manager, Reply};
use crate::vcl::compile::Input;

/// VCL to load at startup: its name in messages, and its text.
pub struct StartVcl {
    pub origin: String,
    pub text: Text,
}

/// Returns the VCL text of `-b`, after its version: one backend.
pub fn backend_vcl(argument: &str) -> String {
    let body = if argument.eq_ignore_ascii_case("none") {
        "none;".to_owned()
    } else if is_backend_path(argument) {
        format!("{{\n    .path = \"{argument}\";\n}}")
    } else if let Some(address) = argument.strip_prefix("https://") {
        https_backend(address)
    } else {
        format!("{{\n    .host = \"{argument}\";\n}}")
    };
    format!("backend default {body}\n")
}

/// Returns the VCL of `-b`.
pub fn given_backend(argument: &str) -> StartVcl {
    StartVcl {
        origin: "<-b argument>".to_owned(),
        text: format!("vcl 4.1;\n{}", backend_vcl(argument)).into(),
    }
}

/// Returns the rest of a VCL text with a backend that is reached over TLS, with all checks. Requests get the name of a
/// public server as `Host`: such a server refuses names that are not in its certificate.
fn https_backend(address: &str) -> String {
    let address = address.strip_suffix('/').unwrap_or(address);
    let backend = format!("{{\n    .host = \"{address}\";\n    .ssl = 1;\n    .ssl_verify_host = 1;\n}}");
    let name = address.strip_suffix(":443").unwrap_or(address);
    let bare = name.rsplit_once(':').map_or(name, |(host, _)| host);
    let is_public = bare.contains('.') && bare.trim_matches(['[', ']']).parse::<std::net::IpAddr>().is_err();
    if !is_public {
        return backend;
    }
    let method = |name_of| format!("\nsub {name_of} {{\n    set bereq.http.Host = \"{name}\";\n}}");
    [backend, method("vcl_backend_fetch"), method("vcl_pipe")].concat()
}

/// Compiles the programs and prints them, or what is wrong with them. Returns the exit code.
pub fn compile_and_print(manager: &mut Manager, vcl: &[StartVcl]) -> u8 {
    let mut code = 0;
    for (at, StartVcl { origin, text }) in vcl.iter().enumerate() {
        let name = format!("boot{at}");
        match manager.new_vcl(&name, Input::Given { name: origin.clone(), text: text.0.clone() }) {
            Ok(warnings) => {
                let shown = manager.vcl_show(&["-v".to_owned(), name]).unwrap_or_default();
                print_line(&format!("{warnings}{shown}"));
            }
            Err(Reply { text, .. }) => {
                print_line(&text.lossy());
                code = 2;
            }
        }
    }
    let _ = std::env::set_current_dir("/");
    if !manager.params.values().debug.has(DebugBits::VCL_KEEP) {
        // A directory that others use is not empty, so it remains.
        let _root = manager.jail.raise();
        let _ = std::fs::remove_dir(&manager.instance.workdir);
    }
    code
}

/// Loads the programs, the last of which becomes active.
pub fn load_vcl(manager: &mut Manager, vcl: &[StartVcl]) -> Outcome<()> {
    for (at, StartVcl { origin, text }) in vcl.iter().enumerate() {
        let name = if vcl.len() == 1 { "boot".to_owned() } else { format!("boot{at}") };
        match manager.new_vcl(&name, Input::Given { name: origin.clone(), text: text.0.clone() }) {
            Ok(warnings) if warnings.is_empty() => {}
            Ok(warnings) => eprintln!("Warnings:\n{warnings}"),
            Err(Reply { text, .. }) => return Err(Fault::plain(format!("\n{text}"))),
        }
        let now = manager.uptime();
        manager.catalogue.activate(&name, now);
    }
    Ok(())
}
