//! The answers to an editor's requests.

use std::collections::BTreeMap;
use std::rc::Rc;

use lacquer_tools::editor::{Encoding, Kind, Outline, Word, complete, hover, is_name, word_at};
use serde_json::{Map, Value, json};

use super::values::{kind_of, location, path_of, position, range, uri_of};
use super::workspace::{Document, Workspace};

/// A place that a request names, and the texts of the programs that contain it.
struct Place {
    path: String,
    document: Rc<Document>,
    offset: usize,
    /// The files of all programs of which the file is a part.
    files: Vec<(String, Rc<Document>)>,
}

/// Answers requests from the texts of a workspace.
pub struct Answers<'w> {
    pub workspace: &'w Workspace,
    pub encoding: Encoding,
}

/// The name at a place. Those of the built-in language cannot be renamed.
struct Name {
    name: String,
    kind: Option<Kind>,
}

impl Answers<'_> {
    fn document(&self, params: &Value) -> Option<(String, Rc<Document>)> {
        let path = path_of(params["textDocument"]["uri"].as_str()?)?;
        let document = self.workspace.document(&path)?;
        Some((path, document))
    }

    fn place(&self, params: &Value) -> Option<Place> {
        let (path, document) = self.document(params)?;
        let at = position(&params["position"])?;
        let offset = document.lines.offset(&document.text, at, self.encoding);
        let mut files: BTreeMap<String, Rc<Document>> = BTreeMap::new();
        for root in self.workspace.roots(&path) {
            for file in self.workspace.program(&root) {
                if let Some(document) = self.workspace.document(&file) {
                    files.insert(file, document);
                }
            }
        }
        files.insert(path.clone(), document.clone());
        Some(Place { path, document, offset, files: files.into_iter().collect() })
    }

    pub fn hover(&self, params: &Value) -> Option<Value> {
        let place = self.place(params)?;
        let word = word_at(&place.document.text, place.offset);
        let declared: Vec<_> =
            place.files.iter().flat_map(|(_, document)| &document.outline.declared).collect();
        let text = hover(&place.document.text, &word, &declared, lacquer_vmods::catalogue())?;
        let span = word.span.start..word.name_span().end;
        Some(json!({
            "contents": { "kind": "markdown", "value": text },
            "range": range(&place.document, &span, self.encoding),
        }))
    }

    pub fn completion(&self, params: &Value) -> Option<Value> {
        let place = self.place(params)?;
        let outlines: Vec<&Outline> = place.files.iter().map(|(_, document)| &document.outline).collect();
        let Document { text, outline, .. } = &*place.document;
        let found = complete(text, place.offset, outline, &outlines, lacquer_vmods::catalogue());
        let word = word_at(text, place.offset);
        let start = word.span.start.min(place.offset);
        let replaced = range(&place.document, &(start..place.offset), self.encoding);
        let items: Vec<Value> = found
            .iter()
            .map(|candidate| {
                json!({
                    "label": candidate.label,
                    "kind": kind_of(candidate.kind),
                    "detail": candidate.detail,
                    "filterText": candidate.label,
                    "textEdit": { "range": replaced, "newText": candidate.label },
                })
            })
            .collect();
        Some(json!({ "isIncomplete": false, "items": items }))
    }

    /// Returns the name at a place, if it is the first of its path, or the whole path.
    fn name_at(place: &Place) -> Option<(Name, Word)> {
        let word = word_at(&place.document.text, place.offset);
        let mentions = &place.document.outline.mentions;
        let mention = mentions.iter().find(|m| m.span.start <= place.offset && place.offset <= m.span.end)?;
        let declared = place.files.iter().flat_map(|(_, document)| &document.outline.declared);
        let found = declared.into_iter().find(|declared| declared.name == mention.name);
        Some((Name { name: mention.name.clone(), kind: found.map(|found| found.kind) }, word))
    }

    pub fn definition(&self, params: &Value) -> Option<Value> {
        let place = self.place(params)?;
        if let Some(file) = self.include_at(&place) {
            let document = self.workspace.document(&file)?;
            return Some(json!([location(&file, &document, &(0..0), self.encoding)]));
        }
        let (name, _) = Answers::name_at(&place)?;
        let mut found = Vec::new();
        for (file, document) in &place.files {
            let here = document.outline.declared.iter().filter(|declared| declared.name == name.name);
            found.extend(here.map(|declared| location(file, document, &declared.span, self.encoding)));
        }
        Some(Value::Array(found))
    }

    /// Returns the file that the include at a place names.
    fn include_at(&self, place: &Place) -> Option<String> {
        let includes = &place.document.outline.includes;
        let at = includes.iter().position(|i| i.span.contains(&place.offset))?;
        let files = self.workspace.included_by(&place.path);
        if files.len() == includes.len() { files.into_iter().nth(at) } else { files.into_iter().next() }
    }

    pub fn references(&self, params: &Value) -> Option<Value> {
        let place = self.place(params)?;
        let (name, _) = Answers::name_at(&place).filter(|(name, _)| name.kind.is_some())?;
        let with_declaration = params["context"]["includeDeclaration"].as_bool().unwrap_or(true);
        let mut found = Vec::new();
        for (file, document) in &place.files {
            for mention in document.outline.mentions.iter().filter(|mention| mention.name == name.name) {
                let is_declaration = document.outline.declared.iter().any(|d| d.span == mention.span);
                if with_declaration || !is_declaration {
                    found.push(location(file, document, &mention.span, self.encoding));
                }
            }
        }
        Some(Value::Array(found))
    }

    /// Returns the range of the name, if it can be renamed.
    pub fn prepare_rename(&self, params: &Value) -> Result<Value, String> {
        let place = self.place(params).ok_or("the file is not known")?;
        let (name, _) = renamable(&place)?;
        let mentions = &place.document.outline.mentions;
        let span = mentions
            .iter()
            .find(|m| m.name == name && m.span.start <= place.offset && place.offset <= m.span.end)
            .map(|mention| mention.span.clone());
        let span = span.ok_or("there is no name here")?;
        Ok(json!({ "range": range(&place.document, &span, self.encoding), "placeholder": name }))
    }

    pub fn rename(&self, params: &Value) -> Result<Value, String> {
        let new = params["newName"].as_str().unwrap_or_default();
        let place = self.place(params).ok_or("the file is not known")?;
        let (name, kind) = renamable(&place)?;
        if !is_name(new) {
            return Err(format!("`{new}` is not a name: letters, digits, - and _, beginning with a letter"));
        }
        if new.starts_with("vcl_") || RESERVED.contains(&new) {
            return Err(format!("`{new}` belongs to the language"));
        }
        let declared = place.files.iter().flat_map(|(_, document)| &document.outline.declared);
        if declared.into_iter().any(|declared| declared.name == new) {
            return Err(format!("`{new}` is declared already"));
        }
        let mut changes: Map<String, Value> = Map::new();
        for (file, document) in &place.files {
            let mut edits = Vec::new();
            for mention in document.outline.mentions.iter().filter(|mention| mention.name == name) {
                let is_import = |declared: &&lacquer_tools::editor::Declared| {
                    kind == Kind::Module && declared.span == mention.span && declared.of == name
                };
                // A module keeps its own name.
                let text = if document.outline.declared.iter().any(|d| is_import(&d)) {
                    format!("{name} as {new}")
                } else {
                    new.to_owned()
                };
                edits
                    .push(json!({ "range": range(document, &mention.span, self.encoding), "newText": text }));
            }
            if !edits.is_empty() {
                changes.insert(uri_of(file), Value::Array(edits));
            }
        }
        Ok(json!({ "changes": changes }))
    }

    /// Returns the whole text as one change. A text that cannot be formatted has none.
    pub fn formatting(&self, params: &Value) -> Result<Value, String> {
        let (path, document) = self.document(params).ok_or("the file is not known")?;
        let formatted =
            lacquer_tools::format(&path, document.text.as_bytes()).map_err(|error| error.message())?;
        let formatted = String::from_utf8(formatted).map_err(|_| "the text is not UTF-8")?;
        if formatted == document.text {
            return Ok(json!([]));
        }
        let whole = range(&document, &(0..document.text.len()), self.encoding);
        Ok(json!([{ "range": whole, "newText": formatted }]))
    }

    pub fn symbols(&self, params: &Value) -> Option<Value> {
        let (_, document) = self.document(params)?;
        let symbol = |declared: &lacquer_tools::editor::Declared| {
            let number = match declared.kind {
                Kind::Module => 2,
                Kind::Sub => 12,
                Kind::Object => 19,
                Kind::Backend | Kind::Probe | Kind::Acl => 14,
            };
            json!({
                "name": declared.name,
                "detail": declared.kind.word(),
                "kind": number,
                "range": range(&document, &declared.whole, self.encoding),
                "selectionRange": range(&document, &declared.span, self.encoding),
            })
        };
        Some(Value::Array(document.outline.declared.iter().map(symbol).collect()))
    }
}

/// Words that cannot be names of declarations.
const RESERVED: [&str; 16] = [
    "if", "else", "elseif", "set", "unset", "call", "return", "new", "default", "sub", "backend", "probe",
    "acl", "import", "include", "vcl",
];

/// Returns the name at a place and its kind, if it is declared in the program.
fn renamable(place: &Place) -> Result<(String, Kind), String> {
    let (name, _) = Answers::name_at(place).ok_or("there is no name here")?;
    let kind = name.kind.ok_or_else(|| format!("`{}` is not declared in this program", name.name))?;
    if name.name.starts_with("vcl_") || name.name == "default" {
        return Err(format!("`{}` belongs to the language", name.name));
    }
    Ok((name.name, kind))
}
