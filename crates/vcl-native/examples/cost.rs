//! Measures the cost of loading and running VCL: `cargo run --release -p lacquer-vcl-native --example cost`.

use std::fmt::Write as _;

use lacquer_http::{Message, Workspace};
use lacquer_vcl::program::Program;
use lacquer_vcl::types::{HttpId, Method};
use lacquer_vcl::variables_table::Var;
use lacquer_vcl::{NoFiles, NoModules, NumericResolver, Options};
use lacquer_vcl_native::LoadedVcl;
use lacquer_vcl_runtime::{Ctx, HeaderName, Host, HostResult, Instance, PrivateMap, StableValues};

/// A minimal host, so that the measurement covers VCL and its reads of a request's head.
struct Cheap {
    method: Method,
    workspace: Vec<u8>,
    used: usize,
    privates: PrivateMap,
    head: Message,
    texts: Workspace,
}

const HEAD: [&str; 8] = [
    "Host: www.example.com",
    "User-Agent: Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0",
    "Accept: text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8",
    "Accept-Language: en-US,en;q=0.5",
    "Accept-Encoding: gzip",
    "Referer: https://www.example.com/",
    "Connection: keep-alive",
    "X-Forwarded-For: 192.0.2.1",
];

// SAFETY: no range of the workspace is returned twice in a run, and the head does not change.
unsafe impl StableValues for Cheap {}

impl Host for Cheap {
    fn method(&self) -> Method {
        self.method
    }
    fn now(&self) -> f64 {
        0.0
    }
    fn real_now(&self) -> f64 {
        0.0
    }
    fn alloc(&mut self, bytes: usize) -> Option<&mut [u8]> {
        let place = self.workspace.get_mut(self.used..self.used + bytes)?;
        self.used += bytes;
        Some(place)
    }
    fn copy(&mut self, bytes: &[u8]) -> Option<&[u8]> {
        let place = self.workspace.get_mut(self.used..self.used + bytes.len())?;
        place.copy_from_slice(bytes);
        self.used += bytes.len();
        Some(place)
    }
    fn get_str(&mut self, var: Var) -> Option<&[u8]> {
        Some(match var {
            Var::ReqMethod => b"GET",
            Var::ReqProto => b"HTTP/1.1",
            _ => b"/some/path/index.html",
        })
    }
    fn header(&mut self, http: HttpId, name: &HeaderName) -> Option<&[u8]> {
        if http != HttpId::Req {
            return None;
        }
        self.head.get(&self.texts, name.name.borrow())
    }
    fn set_header(&mut self, _http: HttpId, _name: &HeaderName, _value: Option<&[u8]>) -> HostResult<()> {
        Ok(())
    }
    fn unset_header(&mut self, _http: HttpId, _name: &HeaderName) -> HostResult<()> {
        Ok(())
    }
    fn hash_data(&mut self, _data: Option<&[u8]>) -> HostResult<()> {
        Ok(())
    }
    fn log(&mut self, _tag: u8, _text: &[u8]) {}
    fn fail(&mut self, text: &str) {
        println!("failed: {text}");
    }
    fn task_privates(&mut self) -> &mut PrivateMap {
        &mut self.privates
    }
}

fn check(text: &str) -> Program {
    let options = Options::new(&NoModules, &NoFiles, &NumericResolver);
    match lacquer_vcl::compile("<vcl.inline>", text, &options) {
        Ok(compiled) => compiled.program,
        Err(diagnostics) => panic!("{}", lacquer_vcl::vcl_load_text(&diagnostics)),
    }
}

/// Returns the thread's own CPU time, which other work on the machine affects less.
fn cpu() -> f64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    now.tv_sec as f64 * 1e3 + now.tv_nsec as f64 / 1e6
}

fn milliseconds<T>(work: impl FnOnce() -> T) -> (T, f64) {
    let start = cpu();
    let value = work();
    (value, cpu() - start)
}

fn load(what: &str, text: &str) -> LoadedVcl {
    let mut best = [f64::MAX; 3];
    let mut last = None;
    for _ in 0..7 {
        let (program, front) = milliseconds(|| check(text));
        let (instance, prepare) = milliseconds(|| Instance::new("bench", program, &[], true));
        let (loaded, code) = milliseconds(|| lacquer_vcl_native::compile(instance.expect("sound")));
        for (best, now) in best.iter_mut().zip([front, prepare, code]) {
            *best = best.min(now);
        }
        last = loaded.ok();
    }
    let [front, prepare, code] = best;
    println!(
        "{what}: check {front:.2} ms, prepare {prepare:.2} ms, code {code:.2} ms, all {:.2} ms",
        front + prepare + code
    );
    last.expect("it compiles")
}

fn run(what: &str, loaded: &LoadedVcl, methods: &[Method]) {
    const ROUNDS: u32 = 200_000;
    let mut host = Cheap {
        method: Method::Recv,
        workspace: vec![0; 65536],
        used: 0,
        privates: PrivateMap::default(),
        head: Message::new(64),
        texts: Workspace::new(65536),
    };
    for line in HEAD {
        host.head.append_line_copy(&mut host.texts, line.as_bytes()).expect("room");
    }
    let mut best = f64::MAX;
    for _ in 0..5 {
        let ((), time) = milliseconds(|| {
            for _ in 0..ROUNDS {
                host.used = 0;
                for &method in methods {
                    host.method = method;
                    let mut ctx = Ctx::new(&mut host, loaded.instance());
                    std::hint::black_box(loaded.run(method, &mut ctx));
                }
            }
        });
        best = best.min(time * 1e6 / f64::from(ROUNDS));
    }
    println!("{what}: {best:.0} ns a request");
}

fn large() -> String {
    let mut text = String::from("vcl 4.1;\nbackend default { .host = \"127.0.0.1\"; }\n");
    for i in 0..20 {
        writeln!(text, "sub part{i} {{").unwrap();
        for j in 0..10 {
            let n = i * 10 + j;
            write!(
                text,
                "    if (req.url ~ \"^/path{n}/[a-z]+/(\\d+)\\.(png|jpe?g|gif)$\") {{
        set req.http.X-Kind = \"image-{n}\";
        unset req.http.Cookie;
        set req.url = regsub(req.url, \"\\?.*{n}$\", \"\");
        if (req.http.X-Kind == \"none\" || req.method == \"POST\") {{
            return (pass);
        }}
    }} elseif (req.http.Host == \"host{n}.example.com\") {{
        set req.http.X-Host = \"h\" + req.http.Host + \"-{n}\";
        set req.grace = {n}s;
    }} else {{
        set req.http.X-Count = req.restarts + 1;
    }}
    if (req.url == \"/exact/{n}\") {{
        return (synth(404, \"Not \" + req.url));
    }}
"
            )
            .unwrap();
        }
        text.push_str("}\n");
    }
    text.push_str("sub vcl_recv {\n");
    for i in 0..20 {
        writeln!(text, "    call part{i};").unwrap();
    }
    text.push_str("}\n");
    text
}

fn main() {
    let smallest = load("smallest", "vcl 4.1;\nbackend default { .host = \"127.0.0.1\"; }\n");
    let text = large();
    let lines = text.lines().count();
    let large = load(&format!("{lines} lines"), &text);
    let hit = [Method::Recv, Method::Hash, Method::Hit, Method::Deliver];
    run("built-in VCL on a hit", &smallest, &hit);
    run("large VCL on a hit", &large, &hit);
}
