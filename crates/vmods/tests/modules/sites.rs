//! Tests that programs like those of real sites load unchanged: our own text, with the common elements of the templates
//! of shops, blogs and portals.

use std::path::Path;

use lacquer_vcl::program::IdentityPem;
use lacquer_vcl::{Files, NumericResolver, Options, SocketKind, compile_file, lint, vcc_text};
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

#[test]
fn sites_load_and_compile() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/modules/sites");
    let storages = ["s0".to_owned(), "Transient".to_owned()];
    for (name, warnings) in [("shop", 0), ("blog", 0), ("portal", 1)] {
        let mut options = Options::new(lacquer_vmods::catalogue(), &Disk, &NumericResolver);
        options.storages = &storages;
        let compiled = compile_file(&format!("{folder}/{name}.vcl"), &options);
        let compiled = compiled.unwrap_or_else(|errors| panic!("{}", vcc_text(&errors)));
        // One of the portal's addresses has no name in DNS, which is reported and is not an error.
        assert_eq!(compiled.warnings.len(), warnings, "{name}: {}", vcc_text(&compiled.warnings));
        for found in lint(&compiled.program) {
            assert!(!found.pretty().is_empty(), "{name}");
        }
        let instance = Instance::new(name, compiled.program, lacquer_vmods::all(), true);
        let loaded = lacquer_vcl_native::compile(instance.expect("all names are known"));
        assert!(loaded.is_ok(), "{name}: {:?}", loaded.err());
    }
}
