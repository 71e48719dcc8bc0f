//! Tests that programs like those of real sites load unchanged: our own text, with the common elements of the templates
//! of shops, blogs and portals.

use std::path::Path;

use lacquer_vcl::program::IdentityPem;
use lacquer_vcl::{
    Compiled, Diagnostic, Files, NumericResolver, Options, SocketKind, compile, compile_file, lint, vcc_text,
};
use lacquer_vcl_runtime::Instance;

struct Disk;

impl Files for Disk {
    fn read(&self, path: &str) -> Result<Vec<u8>, String> {
        std::fs::read(path).map_err(|error| error.to_string())
    }
    fn exists(&self, path: &str) -> bool {
        Path::new(path).exists()
    }
    fn glob(&self, _pattern: &str) -> Result<Vec<String>, String> {
        Ok(Vec::new())
    }
    fn socket(&self, _path: &str) -> SocketKind {
        SocketKind::NotASocket
    }
    fn authorities(&self, _path: Option<&str>) -> Result<Vec<u8>, String> {
        Err("not in this test".to_owned())
    }
    fn identity(&self, _certificate: &str, _key: Option<&str>) -> Result<IdentityPem, String> {
        Err("not in this test".to_owned())
    }
}

/// Compiles a program to machine code. Returns the number of warnings.
fn load(name: &str, compiled: Result<Compiled, Vec<Diagnostic>>) -> usize {
    let compiled = compiled.unwrap_or_else(|errors| panic!("{name}: {}", vcc_text(&errors)));
    for found in lint(&compiled.program) {
        assert!(!found.pretty().is_empty(), "{name}");
    }
    let instance = Instance::new(name, compiled.program, lacquer_vmods::all(), true);
    let loaded = lacquer_vcl_native::compile(instance.expect("all names are known"));
    assert!(loaded.is_ok(), "{name}: {:?}", loaded.err());
    compiled.warnings.len()
}

#[test]
fn sites_load_and_compile() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/modules/sites");
    let storages = ["s0".to_owned(), "Transient".to_owned()];
    // One of the portal's addresses has no name in DNS, which is reported and is not an error.
    let sites = [("shop", 0), ("blog", 0), ("portal", 1), ("moving_origins", 0), ("services", 0)];
    for (name, warnings) in sites {
        let mut options = Options::new(lacquer_vmods::catalogue(), &Disk, &NumericResolver);
        options.storages = &storages;
        options.strict_hosts = false;
        let found = load(name, compile_file(&format!("{folder}/{name}.vcl"), &options));
        assert_eq!(found, warnings, "{name}");
    }
}

/// Every page of a module has an example, which can be pasted.
#[test]
fn examples_load_and_compile() {
    for module in lacquer_vmods::catalogue().modules() {
        let docs = module.functions.iter().chain(
            module.objects.iter().flat_map(|object| std::iter::once(&object.init).chain(&object.methods)),
        );
        let examples: Vec<&str> = docs.flat_map(|signature| examples(&signature.doc)).collect();
        assert!(!examples.is_empty(), "the page of {} has no example", module.name);
        for (i, example) in examples.iter().enumerate() {
            let backend = if example.contains("backend ") { "" } else { "backend default none;\n" };
            let import = format!("import {};", module.name);
            let import = if example.contains(&import) { "" } else { &import };
            let text = format!("vcl 4.1;\n{import}\n{backend}{example}");
            let mut options = Options::new(lacquer_vmods::catalogue(), &Disk, &NumericResolver);
            options.strict_hosts = false;
            load(&format!("{}_{i}", module.name), compile("example", text, &options));
        }
    }
}

/// Returns the blocks of VCL in a text.
fn examples(doc: &str) -> impl Iterator<Item = &str> {
    doc.split("```vcl\n").skip(1).filter_map(|rest| rest.split("```").next())
}
