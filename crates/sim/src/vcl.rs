//! The VCL of the worlds: one text with a few settings, so that each thread compiles a program once for all its worlds.

use std::cell::RefCell;
use std::sync::atomic::{AtomicU64, Ordering};

use lacquer_vcl::{NoFiles, NumericResolver, Options};

const TEXT: &str = include_str!("world.vcl");
const PROBE: &str = r#"probe health {
    .url = "/probe"; .interval = 1s; .timeout = 0.5s; .window = 4; .threshold = 3; .initial = 3;
}"#;

thread_local! {
    /// The folder of this thread's origins. The engine shares its records about an origin within the process, so worlds
    /// that run at the same time have different folders.
    static PLACE: String = {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        format!("/world/{}", NEXT.fetch_add(1, Ordering::Relaxed))
    };
    /// Compiled programs.
    static COMPILED: RefCell<[Option<Vec<u8>>; 4]> = const { RefCell::new([const { None }; 4]) };
}

/// Returns the path of an origin of this thread's world.
pub fn path_of(origin: &str) -> String {
    PLACE.with(|place| format!("{place}/{origin}"))
}

/// A program that a world can load.
#[derive(Clone, Copy, Debug)]
pub struct Program {
    /// Stale objects are delivered and kept for validation, and fetches are retried.
    pub is_lenient: bool,
    /// The origins are probed.
    pub has_probes: bool,
}

impl Program {
    /// Returns the grace of objects, in seconds.
    pub fn grace(self) -> f64 {
        match self {
            Program { has_probes: true, .. } => 60.0,
            Program { is_lenient: true, .. } => 10.0,
            Program { is_lenient: false, .. } => 0.0,
        }
    }

    fn text(self) -> String {
        let (grace, keep, retries) = if self.is_lenient { ("10s", "30s", "1") } else { ("0s", "0s", "0") };
        // An unused probe would be an error in VCL.
        let probe = if self.has_probes { (PROBE, ".probe = health;") } else { ("", "") };
        let text = TEXT.replace("GRACE", grace).replace("KEEP", keep).replace("RETRIES", retries);
        let text = text.replace("DECLARATION", probe.0).replace("PROBE", probe.1);
        PLACE.with(|place| text.replace("PLACE", place))
    }

    fn compile(self) -> Result<Vec<u8>, String> {
        let options = Options::new(lacquer_vmods::catalogue(), &NoFiles, &NumericResolver);
        let compiled = lacquer_vcl::compile("world", self.text(), &options)
            .map_err(|found| lacquer_vcl::vcl_load_text(&found))?;
        postcard::to_stdvec(&compiled.program).map_err(|error| error.to_string())
    }

    /// Returns the program as the manager would send it.
    pub fn compiled(self) -> Result<Vec<u8>, String> {
        let number = usize::from(self.is_lenient) + 2 * usize::from(self.has_probes);
        COMPILED.with_borrow_mut(|compiled| match &mut compiled[number] {
            Some(program) => Ok(program.clone()),
            empty => Ok(empty.insert(self.compile()?).clone()),
        })
    }
}
