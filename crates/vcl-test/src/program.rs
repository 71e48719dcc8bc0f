//! The VCL under test: it is compiled as `vcl.load` would, and then connected to the origins of the test.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;

use lacquer_inspect::why::SourceText;
use lacquer_manager::Machine;
use lacquer_params::{Params, VccFeatureBits};
use lacquer_tools::Offline;
use lacquer_vcl::program::{Program, Source};
use lacquer_vcl::{Diagnostic, Options};

/// Maximum number of errors to report.
const MAX_ERRORS: usize = 10;
/// The network for measurements (RFC 2544), which no real origin uses. Backends have addresses in it.
const NETWORK: u32 = u32::from_be_bytes([198, 18, 0, 0]);
const PORT: u16 = 80;

/// A compiled VCL.
#[derive(Debug)]
pub struct Compiled {
    /// The program in the form in which the manager sends it.
    pub program: Vec<u8>,
    /// The backends with the addresses that they have in a test.
    pub backends: Vec<(String, SocketAddr)>,
    pub sources: Vec<SourceText>,
    /// Its objects have a state, so each test needs a new one.
    pub has_objects: bool,
}

/// Compiles a file. Errors contain the texts for a terminal.
pub fn compile(file: &str, params: &Params) -> Result<Compiled, String> {
    let text = std::fs::read(file).map_err(|error| format!("{file}: {error}"))?;
    let machine = Machine::new();
    let storages = ["s0", "Transient"].map(str::to_owned);
    let mut options = Options::new(lacquer_vmods::catalogue(), &machine, &Offline);
    options.max_errors = MAX_ERRORS;
    options.strict_hosts = false;
    options.storages = &storages;
    options.vcl_path = &params.vcl_path;
    options.err_unref = params.vcc_feature.has(VccFeatureBits::ERR_UNREF);
    options.unsafe_path = params.vcc_feature.has(VccFeatureBits::UNSAFE_PATH);
    // The absolute name makes the compiler find includes in the same folder.
    let absolute = std::path::absolute(file).map_err(|error| format!("{file}: {error}"))?;
    let shorten = |name: &str| shorten(name, &absolute, file);
    match lacquer_vcl::compile(&absolute.to_string_lossy(), text, &options) {
        Ok(compiled) => finish(compiled.program, shorten),
        Err(diagnostics) => Err(texts(diagnostics, shorten)),
    }
}

/// Returns the name of a source as the user would write it.
fn shorten(name: &str, absolute: &Path, given: &str) -> String {
    if Path::new(name) == absolute {
        return given.to_owned();
    }
    let folder = std::env::current_dir().unwrap_or_default();
    Path::new(name)
        .strip_prefix(folder)
        .map_or_else(|_| name.to_owned(), |rest| rest.to_string_lossy().into_owned())
}

fn texts(diagnostics: Vec<Diagnostic>, shorten: impl Fn(&str) -> String) -> String {
    let text = |mut diagnostic: Diagnostic| {
        diagnostic.rename_files(|file| *file = shorten(file));
        lacquer_tools::report::text(&diagnostic, false)
    };
    diagnostics.into_iter().map(text).collect::<Vec<_>>().join("\n")
}

fn finish(mut program: Program, shorten: impl Fn(&str) -> String) -> Result<Compiled, String> {
    program.environment = lacquer_manager::mentioned_variables(&program);
    let source = |(number, source): (usize, &Source)| SourceText {
        number,
        name: if source.builtin { source.name.clone() } else { shorten(&source.name) },
        lines: String::from_utf8_lossy(source.text.as_ref()).lines().map(str::to_owned).collect(),
    };
    let sources = program.sources.iter().enumerate().map(source).collect();
    program.sources = Vec::new();
    let backends = connect(&mut program);
    Ok(Compiled {
        has_objects: !program.modules.objects.is_empty(),
        program: postcard::to_stdvec(&program).map_err(|error| error.to_string())?,
        backends,
        sources,
    })
}

/// Gives each backend an address of its own, and connections without TLS, PROXY header and probe.
fn connect(program: &mut Program) -> Vec<(String, SocketAddr)> {
    let mut backends = Vec::new();
    for (number, backend) in
        program.origins.backends.iter_mut().enumerate().filter(|(_, backend)| !backend.none)
    {
        let ip = Ipv4Addr::from(NETWORK + 1 + (number as u32 & 0xffff));
        let address = SocketAddr::from((ip, PORT));
        backend.address.path = None;
        backend.address.name = None;
        (backend.address.ipv4, backend.address.ipv6) = (Some(address), None);
        (backend.probe, backend.via, backend.tls) = (None, None, None);
        (backend.proxy_header, backend.preamble, backend.http2) = (None, None, false);
        backends.push((backend.name.clone(), address));
    }
    backends
}
