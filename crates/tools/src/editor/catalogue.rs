//! The names of the language and of modules, as texts for editors.

use std::fmt::Write as _;

use lacquer_vcl::signature::{Param, ParamKind, Signature};
use lacquer_vcl::types::Method;
use lacquer_vcl::variables_table::{ALL, BACKEND, CLIENT, Entry};

/// The methods that a set of bits names, in words.
pub fn methods(bits: u32) -> String {
    match bits & ALL {
        0 => return "nowhere".to_owned(),
        ALL => return "everywhere".to_owned(),
        CLIENT => return "on the client side".to_owned(),
        BACKEND => return "on the backend side".to_owned(),
        all if all == CLIENT | BACKEND => return "on the client and backend side".to_owned(),
        _ => {}
    }
    let mut places = String::new();
    let mut left = bits;
    for (side, name) in [(CLIENT, "on the client side"), (BACKEND, "on the backend side")] {
        if left & side == side {
            places.push_str(name);
            places.push_str(" and ");
            left &= !side;
        }
    }
    let names: Vec<&str> = Method::ALL
        .iter()
        .filter(|method| left & (1 << **method as u32) != 0)
        .map(|m| m.sub_name())
        .collect();
    format!("{places}in {}", names.join(", "))
}

/// Returns the method of a name such as `vcl_recv`.
pub fn method(name: &str) -> Option<Method> {
    Method::ALL.into_iter().find(|method| method.sub_name() == name)
}

/// Returns the manual text of a variable.
pub fn variable(entries: &[&Entry]) -> String {
    let Some(last) = entries.last() else { return String::new() };
    let mut text = format!("```vcl\n{} {}\n```\n{}.\n", last.ty.name(), last.name, last.var.prose());
    for entry in entries {
        let version = match (entry.since, entry.until) {
            (40, 40) => " (VCL 4.0)",
            (41, _) if entries.len() > 1 => " (VCL 4.1)",
            _ => "",
        };
        let mut uses = Vec::new();
        for (bits, verb) in
            [(entry.read, "readable"), (entry.write, "can be set"), (entry.unset, "can be unset")]
        {
            if bits != 0 {
                uses.push(format!("{verb} {}", methods(bits)));
            }
        }
        let _ = write!(text, "\n{}{version}.", uses.join("; "));
    }
    text
}

/// Returns a signature as the manual writes it. `name` is the whole name, such as `std.log`.
pub fn signature(name: &str, signature: &Signature) -> String {
    let params: Vec<String> = signature.slots().map(param).collect();
    let returns = signature.returns.name();
    format!("{returns} {name}({})", params.join(", "))
}

fn param(param: &Param) -> String {
    let mut text = match &param.kind {
        ParamKind::Enum(values) => format!("ENUM {{{}}}", values.join(", ")),
        _ => param.ty().name().to_owned(),
    };
    if let Some(name) = &param.name {
        let _ = write!(text, " {name}");
    }
    if let Some(default) = &param.default {
        let is_text = param.ty() == lacquer_vcl::types::Type::String && default != "NULL";
        let _ = if is_text { write!(text, "=\"{default}\"") } else { write!(text, "={default}") };
    }
    if param.optional { format!("[{text}]") } else { text }
}

/// Returns the manual text of a function, method or constructor.
pub fn function(name: &str, found: &Signature) -> String {
    let mut text = format!("```vcl\n{}\n```\n{}", signature(name, found), found.doc.trim());
    if found.allowed & ALL != ALL {
        let _ = write!(text, "\n\nCan be called {}.", methods(found.allowed));
    }
    text
}
