//! The manual text of the name at a place.

use lacquer_vcl::Catalogue;
use lacquer_vcl::types::Action;
use lacquer_vcl::variables_table::{ENTRIES, Entry, HEADERS};

use super::catalogue::{function, method, methods, variable};
use super::outline::{Declared, Kind};
use super::word::{Word, statement_before};

/// Returns the text about the word at a place, in Markdown. `declared` are the declarations of the whole program.
pub fn hover(text: &str, word: &Word, declared: &[&Declared], catalogue: &dyn Catalogue) -> Option<String> {
    let path = word.up_to_name();
    if path.is_empty() {
        return None;
    }
    let before = statement_before(text, word.span.start).trim_end();
    if before.ends_with("import") {
        return module(path, catalogue);
    }
    if before.trim_start().starts_with("return")
        && let Some(action) = Action::ALL.into_iter().find(|action| action.name() == path)
    {
        let allowed = lacquer_vcl::allowed_in(action);
        return Some(format!("```vcl\nreturn ({path})\n```\nAllowed {}.", methods(allowed)));
    }
    if let Some(found) = declared.iter().find(|declared| declared.name == path) {
        return Some(about_declared(found, catalogue));
    }
    of_module(path, declared, catalogue).or_else(|| of_language(path))
}

fn module(name: &str, catalogue: &dyn Catalogue) -> Option<String> {
    let found = catalogue.module(name)?;
    let mut text = format!("```vcl\nimport {name};\n```\n{}\n", found.description);
    let functions = found.functions.iter().map(|function| function.name.clone());
    let objects = found.objects.iter().map(|object| format!("new {}", object.name));
    let names: Vec<String> = functions.chain(objects).collect();
    text += &names.join(", ");
    Some(text)
}

fn about_declared(found: &Declared, catalogue: &dyn Catalogue) -> String {
    match found.kind {
        Kind::Module => module(&found.of, catalogue).unwrap_or_else(|| format!("module {}", found.of)),
        Kind::Object => format!("```vcl\nnew {} = {}()\n```", found.name, found.of),
        Kind::Sub => match method(&found.name) {
            Some(method) => {
                let returns = lacquer_vcl::returns_of(method);
                let actions = Action::ALL.into_iter().filter(|action| returns & (1 << *action as u32) != 0);
                let names: Vec<&str> = actions.map(Action::name).collect();
                format!("```vcl\nsub {}\n```\nMay return {}.", found.name, names.join(", "))
            }
            None => format!("```vcl\nsub {}\n```", found.name),
        },
        kind => format!("```vcl\n{} {}\n```", kind.word(), found.name),
    }
}

/// Returns the text of a function of a module, of a constructor or of a method.
fn of_module(path: &str, declared: &[&Declared], catalogue: &dyn Catalogue) -> Option<String> {
    let (first, rest) = path.split_once('.')?;
    let found = declared.iter().find(|declared| declared.name == first)?;
    match found.kind {
        Kind::Module => {
            let signatures = catalogue.module(&found.of)?;
            let whole = signatures.function(rest).or_else(|| Some(&signatures.object(rest)?.init))?;
            Some(function(path, whole))
        }
        Kind::Object => {
            let (module, object) = found.of.split_once('.')?;
            let module = declared.iter().find(|d| d.kind == Kind::Module && d.name == module)?;
            let signatures = catalogue.module(&module.of)?;
            Some(function(path, signatures.object(object)?.method(rest)?))
        }
        _ => None,
    }
}

/// Returns the text of a variable or header.
fn of_language(path: &str) -> Option<String> {
    let lower = path.to_ascii_lowercase();
    let entries: Vec<&Entry> = ENTRIES.iter().filter(|entry| entry.name == path).collect();
    if !entries.is_empty() {
        return Some(variable(&entries));
    }
    let headers = HEADERS.iter().find(|headers| {
        lower == headers.name || lower.strip_prefix(headers.name).is_some_and(|rest| rest.starts_with('.'))
    })?;
    let of = headers.name.trim_end_matches(".http");
    let change = if headers.write == 0 {
        "They cannot be changed.".to_owned()
    } else {
        format!("They can be set and unset {}.", methods(headers.write))
    };
    let readable = methods(headers.read);
    Some(format!("```vcl\nHEADER {path}\n```\nHeaders of `{of}`, readable {readable}. {change}"))
}
