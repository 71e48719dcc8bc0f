//! Every name that programs may use exists with its arguments; every signature has its function, every
//! function its signature and documentation; the pages in docs/vmods are up to date.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::path::{Path, PathBuf};

use lacquer_vcl::Catalogue;
use lacquer_vcl::signature::{ModuleSignatures, ParamKind, Signature};
use lacquer_vmods::catalogue;

use crate::names_table::{FUNCTIONS, METHODS, OBJECTS};

#[test]
fn all_names_exist_with_their_arguments() {
    let modules = catalogue().modules();
    let find = |full: &str| -> Option<Signature> {
        let mut names = full.split('.');
        let (module, first) = (names.next()?, names.next()?);
        let module = modules.iter().find(|m| m.name == module)?;
        match names.next() {
            Some(method) => module.object(first)?.method(method).cloned(),
            None => module.function(first).or_else(|| module.object(first).map(|o| &o.init)).cloned(),
        }
    };
    let mut faults = Vec::new();
    for (name, count) in [FUNCTIONS, OBJECTS, METHODS].concat() {
        match find(name).map(|s| s.slots().count()) {
            None => faults.push(format!("{name} is missing")),
            Some(found) if found != count => {
                faults.push(format!("{name} has {found} arguments, not {count}"));
            }
            Some(_) => {}
        }
    }
    assert!(faults.is_empty(), "\n  {}\n", faults.join("\n  "));
}

#[test]
fn signatures_and_functions_have_the_same_names() {
    let names: Vec<_> = lacquer_vmods::all().iter().map(|m| m.name()).collect();
    assert_eq!(names, catalogue().names(), "every module has an interface that can be read");
    for (module, parsed) in lacquer_vmods::all().iter().zip(catalogue().modules()) {
        let names = |table: &[(&'static str, lacquer_vcl_runtime::Func)]| -> BTreeSet<String> {
            table.iter().map(|(name, _)| (*name).to_owned()).collect()
        };
        let signed = |list: &[Signature]| list.iter().map(|s| s.name.clone()).collect::<BTreeSet<_>>();
        assert_eq!(names(module.functions()), signed(&parsed.functions), "functions of {}", parsed.name);
        let types: Vec<_> = module.objects().iter().map(|o| o.name).collect();
        assert_eq!(types, parsed.objects.iter().map(|o| o.name.as_str()).collect::<Vec<_>>());
        for (object, signatures) in module.objects().iter().zip(&parsed.objects) {
            assert_eq!(names(object.methods), signed(&signatures.methods), "{}.{}", parsed.name, object.name);
        }
        for name in module.suspends() {
            let method = name.split_once('.').map_or(*name, |(_, method)| method);
            let all = parsed.objects.iter().flat_map(|o| &o.methods).chain(&parsed.functions);
            assert!(all.into_iter().any(|s| s.name == method), "{}.{name} suspends", parsed.name);
        }
    }
}

#[test]
fn every_signature_has_documentation() {
    for module in catalogue().modules() {
        let objects = module.objects.iter().flat_map(|o| std::iter::once(&o.init).chain(&o.methods));
        for signature in module.functions.iter().chain(objects) {
            assert!(!signature.doc.is_empty(), "{}.{} has no documentation", module.name, signature.name);
        }
    }
}

/// Run with `LACQUER_WRITE_DOCS=1` to write the pages.
#[test]
fn pages_are_up_to_date() {
    let folder: PathBuf = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/vmods");
    let write = std::env::var_os("LACQUER_WRITE_DOCS").is_some();
    let modules = catalogue().modules();
    let mut pages: Vec<(String, String)> =
        modules.iter().map(|m| (format!("{}.md", m.name), page(m))).collect();
    pages.push(("README.md".to_owned(), contents(modules)));
    for (name, text) in pages {
        let path = folder.join(&name);
        if write {
            std::fs::create_dir_all(&folder).unwrap();
            std::fs::write(&path, &text).unwrap();
        }
        let found = std::fs::read_to_string(&path).unwrap_or_default();
        let hint = "run LACQUER_WRITE_DOCS=1 cargo test -p lacquer-vmods pages_are_up_to_date";
        assert!(found == text, "docs/vmods/{name} differs from the signatures; {hint}");
    }
}

fn contents(modules: &[ModuleSignatures]) -> String {
    let mut out = "# Modules\n\nWhat VCL can `import`. Each page lists a module's functions and objects.\n\n\
         Modules are part of the program. Of `import NAME from \"PATH\"` only the file's name is looked at: a\n\
         `libvmod_OTHER.so` is refused, as it is by Varnish, and the parameter `vmod_path` changes nothing. A\n\
         module that is not in this list cannot be loaded, whatever files there are.\n\n"
        .to_owned();
    for module in modules {
        let _ = writeln!(out, "- [{}]({0}.md): {}", module.name, module.description);
    }
    out
}

fn page(module: &ModuleSignatures) -> String {
    let name = &module.name;
    let mut out = format!("# {name}\n\n{}.\n\n```vcl\nimport {name};\n```\n", module.description);
    for function in &module.functions {
        entry(&mut out, "##", &format!("{name}.{}", function.name), Some(function.returns.name()), function);
    }
    for object in &module.objects {
        entry(&mut out, "##", &format!("new x = {name}.{}", object.name), None, &object.init);
        for method in &object.methods {
            entry(&mut out, "###", &format!("x.{}", method.name), Some(method.returns.name()), method);
        }
    }
    for (old, new) in &module.aliases {
        let _ = write!(out, "\n`{old}` is an older name of `{new}`.\n");
    }
    out
}

fn entry(out: &mut String, level: &str, call: &str, returns: Option<&str>, signature: &Signature) {
    let params: Vec<String> = signature.slots().map(param).collect();
    let returns = returns.map_or_else(String::new, |r| format!("{r} "));
    let _ = write!(out, "\n{level} {returns}{call}({})\n\n{}\n", params.join(", "), signature.doc);
    if signature.allowed != lacquer_vcl::variables_table::ALL {
        let all = lacquer_vcl::types::Method::ALL.iter();
        let subs: Vec<_> =
            all.filter(|m| signature.allowed & (1 << **m as u32) != 0).map(|m| m.sub_name()).collect();
        let _ = write!(out, "\nOnly in {}.\n", subs.join(", "));
    }
}

fn param(param: &lacquer_vcl::signature::Param) -> String {
    let mut text = match &param.kind {
        ParamKind::Enum(words) => format!("{{{}}}", words.join(", ")),
        _ => param.ty().name().to_owned(),
    };
    if let Some(name) = &param.name {
        let _ = write!(text, " {name}");
    }
    if let Some(default) = &param.default {
        let _ = if default.contains([',', ' ']) || default.is_empty() {
            write!(text, " = \"{default}\"")
        } else {
            write!(text, " = {default}")
        };
    }
    if param.optional { format!("[{text}]") } else { text }
}
