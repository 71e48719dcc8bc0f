//! Any file is refused with its place, or means a site whose VCL is a program.
#![no_main]

use lacquer_tools::settings::{Contents, diagnostics, read, site};
use lacquer_tools::Offline;
use lacquer_vcl::{NoFiles, Options, compile};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Contents { settings, mut mistakes } = read(bytes);
    let (mut site, wrong) = site(&settings);
    mistakes.extend(wrong);
    if mistakes.is_empty() {
        site.add_backend("127.0.0.1:80").expect("a backend");
        let text = format!("vcl 4.1;\n{}", site.vcl());
        let options = Options::new(lacquer_vmods::catalogue(), &NoFiles, &Offline);
        if let Err(errors) = compile("fuzz", text.as_bytes(), &options) {
            panic!("{}\n{text}", errors[0].pretty());
        }
    } else {
        let all = diagnostics(&mut mistakes, "fuzz", bytes);
        assert!(all.iter().all(|diagnostic| !diagnostic.pretty().is_empty()));
    }
});
