//! The texts that the server knows: those that are open in the editor, and files that programs include.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::SystemTime;

use lacquer_manager::Machine;
use lacquer_tools::editor::{Lines, Outline};
use lacquer_vcl::program::IdentityPem;
use lacquer_vcl::{Files, SocketKind};

/// The most files of a folder that are searched for programs which include a part.
const MOST_FILES: usize = 500;
/// The most entries of folders that are examined for that, and their depth.
const MOST_ENTRIES: usize = 20_000;
const MOST_DEPTH: usize = 6;
/// Larger files are not read, in bytes.
const MAX_SIZE: u64 = 16 << 20;

/// A text with its outline.
#[derive(Debug)]
pub struct Document {
    pub text: String,
    pub lines: Lines,
    pub outline: Outline,
}

impl Document {
    pub fn new(text: String) -> Document {
        Document { lines: Lines::of(&text), outline: Outline::of(&text), text }
    }
}

/// A file with the time of its last change.
struct Stored {
    changed: SystemTime,
    document: Rc<Document>,
}

/// All known texts, by the absolute path of their file.
pub struct Workspace {
    open: BTreeMap<String, Rc<Document>>,
    stored: RefCell<BTreeMap<String, Stored>>,
    /// The folders in which programs are searched.
    folders: Vec<PathBuf>,
    /// The files with VCL in these folders.
    known: RefCell<Option<Vec<String>>>,
    machine: Machine,
    /// The folders for relative includes, with colons between them.
    vcl_path: String,
}

impl Workspace {
    pub fn new(vcl_path: &str) -> Workspace {
        Workspace {
            open: BTreeMap::new(),
            stored: RefCell::default(),
            folders: Vec::new(),
            known: RefCell::default(),
            machine: Machine::new(),
            vcl_path: vcl_path.to_owned(),
        }
    }

    pub fn vcl_path(&self) -> &str {
        &self.vcl_path
    }

    pub fn set_folders(&mut self, folders: Vec<PathBuf>) {
        self.folders = folders;
        self.forget_files();
    }

    /// Sets the text of a file in the editor.
    pub fn open(&mut self, path: &str, text: String) {
        self.open.insert(path.to_owned(), Rc::new(Document::new(text)));
    }

    pub fn close(&mut self, path: &str) {
        self.open.remove(path);
    }

    /// Forgets which files exist, because some were created or removed.
    pub fn forget_files(&mut self) {
        self.known.replace(None);
    }

    pub fn is_open(&self, path: &str) -> bool {
        self.open.contains_key(path)
    }

    /// Returns the text of a file, that of the editor if it is open there.
    pub fn document(&self, path: &str) -> Option<Rc<Document>> {
        if let Some(open) = self.open.get(path) {
            return Some(open.clone());
        }
        let found = fs::metadata(path).ok().filter(|found| found.is_file() && found.len() <= MAX_SIZE)?;
        let changed = found.modified().ok()?;
        let mut stored = self.stored.borrow_mut();
        if let Some(known) = stored.get(path).filter(|known| known.changed == changed) {
            return Some(known.document.clone());
        }
        let text = String::from_utf8_lossy(&fs::read(path).ok()?).into_owned();
        let document = Rc::new(Document::new(text));
        stored.insert(path.to_owned(), Stored { changed, document: document.clone() });
        Some(document)
    }

    /// Returns the files that a file includes, in their order.
    pub fn included_by(&self, path: &str) -> Vec<String> {
        let Some(document) = self.document(path) else { return Vec::new() };
        let folder = Path::new(path).parent().unwrap_or(Path::new("/"));
        let mut files = Vec::new();
        for include in &document.outline.includes {
            let name = match include.path.strip_prefix("./") {
                Some(rest) => folder.join(rest).to_string_lossy().into_owned(),
                None => self.in_vcl_path(&include.path),
            };
            if name.contains(['*', '?', '[']) {
                files.extend(self.machine.glob(&name).unwrap_or_default());
            } else {
                files.push(name);
            }
        }
        files
    }

    /// Returns the whole name of a file, as the compiler finds it.
    fn in_vcl_path(&self, name: &str) -> String {
        if name.starts_with('/') {
            return name.to_owned();
        }
        let mut paths = self.vcl_path.split(':').map(|folder| format!("{folder}/{name}"));
        paths.find(|path| self.exists(path)).unwrap_or_else(|| name.to_owned())
    }

    /// Returns all files of the program that begins with a file.
    pub fn program(&self, root: &str) -> Vec<String> {
        let (mut files, mut next) = (Vec::new(), vec![root.to_owned()]);
        let mut seen = BTreeSet::new();
        while let Some(path) = next.pop() {
            if seen.len() < MOST_FILES && seen.insert(path.clone()) {
                let mut included = self.included_by(&path);
                included.reverse();
                next.extend(included);
                files.push(path);
            }
        }
        files
    }

    /// Returns the programs that a file is a part of; itself if none includes it.
    pub fn roots(&self, path: &str) -> Vec<String> {
        let Some(document) = self.document(path) else { return Vec::new() };
        if document.outline.has_version {
            return vec![path.to_owned()];
        }
        let mut candidates = self.known_files();
        candidates.extend(self.open.keys().cloned());
        candidates.sort();
        candidates.dedup();
        let begins = |file: &String| {
            file != path && self.document(file).is_some_and(|document| document.outline.has_version)
        };
        let includes = |root: &String| self.program(root).iter().any(|file| file == path);
        let mut roots: Vec<String> =
            candidates.into_iter().filter(|file| begins(file) && includes(file)).collect();
        if roots.is_empty() {
            roots.push(path.to_owned());
        }
        roots
    }

    /// Returns the files with VCL in the folders of the editor.
    fn known_files(&self) -> Vec<String> {
        let mut known = self.known.borrow_mut();
        known.get_or_insert_with(|| search(&self.folders)).clone()
    }
}

fn search(folders: &[PathBuf]) -> Vec<String> {
    let mut files = Vec::new();
    let mut next: Vec<(PathBuf, usize)> = folders.iter().map(|folder| (folder.clone(), 0)).collect();
    let mut entries = 0;
    while let Some((folder, depth)) = next.pop() {
        let Ok(list) = fs::read_dir(folder) else { continue };
        for entry in list.flatten() {
            entries += 1;
            if entries > MOST_ENTRIES || files.len() >= MOST_FILES {
                return files;
            }
            let path = entry.path();
            let Ok(kind) = entry.file_type() else { continue };
            let is_hidden = entry.file_name().to_string_lossy().starts_with('.');
            if kind.is_dir() && depth < MOST_DEPTH && !is_hidden {
                next.push((path, depth + 1));
            } else if path.extension().is_some_and(|extension| extension == "vcl") {
                files.push(path.to_string_lossy().into_owned());
            }
        }
    }
    files
}

/// The compiler reads open texts from the editor.
impl Files for Workspace {
    fn read(&self, path: &str) -> Result<Vec<u8>, String> {
        match self.open.get(path) {
            Some(open) => Ok(open.text.clone().into_bytes()),
            None => self.machine.read(path),
        }
    }

    fn exists(&self, path: &str) -> bool {
        self.open.contains_key(path) || self.machine.exists(path)
    }

    fn glob(&self, pattern: &str) -> Result<Vec<String>, String> {
        self.machine.glob(pattern)
    }

    fn socket(&self, path: &str) -> SocketKind {
        self.machine.socket(path)
    }

    fn authorities(&self, path: Option<&str>) -> Result<Vec<u8>, String> {
        self.machine.authorities(path)
    }

    fn identity(&self, certificate: &str, key: Option<&str>) -> Result<IdentityPem, String> {
        self.machine.identity(certificate, key)
    }
}
