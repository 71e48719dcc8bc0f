//! Any file is refused with its place, or means a site whose VCL is a program.
#![no_main]

use lacquer_tools::settings::{read, site};
use lacquer_tools::Offline;
use lacquer_vcl::{NoFiles, Options, compile};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let found = read(bytes).and_then(|settings| site(&settings));
    match found {
        Ok(mut site) => {
            site.add_backend("127.0.0.1:80").expect("a backend");
            let text = format!("vcl 4.1;\n{}", site.vcl());
            let options = Options::new(lacquer_vmods::catalogue(), &NoFiles, &Offline);
            if let Err(errors) = compile("fuzz", text.as_bytes(), &options) {
                panic!("{}\n{text}", errors[0].pretty());
            }
        }
        Err(mistake) => assert!(!mistake.diagnostic("fuzz", bytes).pretty().is_empty()),
    }
});
