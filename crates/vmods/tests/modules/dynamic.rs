//! The limit of the hosts of a dynamic director.

use std::any::Any;
use std::sync::Arc;

use lacquer_names::{Name, Names, Refresh, Settings};
use lacquer_shm::VsmDir;
use lacquer_vcl::types::Method;
use lacquer_vcl_runtime::{
    BackendId, BackendMaker, Ctx, Director, Health, Instance, Load, NewBackend, Value,
};

use crate::host::{Object, Task, instance};

const LIMIT: usize = 10_000;
const USAGE_TIMEOUT: f64 = 10.0;
/// The port of backends that are in use.
const BUSY: &[u8] = b"81";

/// Makes backends without connections.
struct Maker {
    /// The name of all hosts that are no addresses. It is never resolved.
    unknown: Arc<Name>,
}

impl Maker {
    fn new() -> Arc<Maker> {
        let names = Names::new(|| Settings { servers: "127.0.0.1:1".to_owned(), ..Settings::default() });
        let unknown = names.watch("unknown.invalid", Refresh::default()).expect("a thread for names");
        Arc::new(Maker { unknown })
    }
}

impl BackendMaker for Maker {
    fn make(&self, _vcl: &Instance, backend: NewBackend) -> Result<Arc<dyn Director>, String> {
        let named = backend.spec.address.name.map(|_| self.unknown.clone());
        Ok(Arc::new(Backend { name: backend.spec.name, named }))
    }

    fn watch_service(&self, _service: &str, _refresh: Refresh) -> Result<Arc<Name>, String> {
        Err("there is no name service".to_owned())
    }

    fn shared_memory(&self) -> Result<VsmDir, String> {
        Err("there is no shared memory".to_owned())
    }
}

struct Backend {
    name: String,
    named: Option<Arc<Name>>,
}

impl Director for Backend {
    fn name(&self) -> &str {
        &self.name
    }

    fn kind(&self) -> &'static str {
        "backend"
    }

    fn resolve(&self, _ctx: &mut Ctx<'_>, me: BackendId) -> BackendId {
        me
    }

    fn healthy(&self, _vcl: &Instance) -> Health {
        Health { healthy: true, changed: 0.0 }
    }

    fn load(&self) -> Load {
        let busy = format!(":{})", String::from_utf8_lossy(BUSY));
        Load { in_use: u32::from(self.name.ends_with(&busy)), ..Load::default() }
    }

    fn list(&self, _vcl: &Instance, _details: bool, _json: bool) -> String {
        String::new()
    }

    fn host_names(&self) -> Vec<Arc<Name>> {
        self.named.iter().cloned().collect()
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// Creates a director whose hosts rest after some seconds without use.
fn director(task: &mut Task, usage_timeout: f64) -> Object {
    let mut values = vec![Value::Absent; 23];
    values[0] = Value::Str(Some(b"80"));
    for i in [5, 10, 15] {
        values[i] = Value::Duration(10.0);
    }
    values[9] = Value::Duration(usage_timeout);
    task.make("dynamic.director", "d", &values)
}

/// Returns the backend for the host with a number, or none if it is refused.
fn backend(task: &mut Task, director: Object, number: usize) -> BackendId {
    backend_of(task, director, format!("10.0.{}.{}", number >> 8, number & 255), Value::Absent)
}

fn backend_of(task: &mut Task, director: Object, host: String, port: Value<'static>) -> BackendId {
    let values = [Value::Str(Some(host.leak().as_bytes())), port, Value::Absent];
    match director.call(task, "backend", &values) {
        Ok(Value::Backend(id)) => id,
        _ => panic!("not a backend"),
    }
}

#[test]
fn a_further_host_replaces_one_that_is_not_in_use() {
    let vcl = instance();
    vcl.set_backend_maker(Maker::new());
    let mut task = Task::new(Method::Recv, vcl);
    let (begun, dynamic) = (task.clock.get(), director(&mut task, USAGE_TIMEOUT));
    let mut ids: Vec<BackendId> = Vec::new();
    let permanent = backend(&mut Task::new(Method::Init, vcl), dynamic, 60_000);
    for number in 0..LIMIT - 1 {
        task.clock.set(begun + number as f64 / 1e4);
        ids.push(backend(&mut task, dynamic, number));
    }
    assert!(backend(&mut task, dynamic, LIMIT).is_none());
    let log = task.logged().concat();
    assert!(log.contains("10.0.39.16:80 is refused: the director has 10000 hosts that are in use"), "{log}");

    task.clock.set(begun + 5.0);
    assert_eq!(backend(&mut task, dynamic, 0), ids[0]);
    task.clock.set(begun + 5.0 + USAGE_TIMEOUT - 0.1);
    let further = backend(&mut task, dynamic, LIMIT);
    assert!(vcl.directors.get(further).is_some());
    assert!(
        vcl.directors.get(ids[1]).is_none(),
        "the host that was not used for the longest time is replaced"
    );
    assert_eq!(backend(&mut task, dynamic, 2), ids[2], "a host that rests is used again");
    let other = backend(&mut task, dynamic, 1);
    assert!(!ids.contains(&other) && other != further, "ids belong to one host");
    let removed = |number: usize| vcl.directors.get(ids[number]).is_none();
    assert_eq!([0, 1, 2, 3, 4].map(removed), [false, true, false, true, false]);
    assert!(vcl.directors.get(permanent).is_some(), "a director may contain the backend of vcl_init");
    assert_eq!(vcl.directors.all().len(), LIMIT);
}

/// Invented hosts must not lock out others for as long as their backends do not rest.
#[test]
fn a_further_host_replaces_an_unresolved_one_and_then_an_idle_one() {
    let vcl = instance();
    vcl.set_backend_maker(Maker::new());
    let mut task = Task::new(Method::Recv, vcl);
    let (begun, dynamic) = (task.clock.get(), director(&mut task, 7200.0));
    let busy = backend_of(&mut task, dynamic, "10.9.0.1".to_owned(), Value::Str(Some(BUSY)));
    let invented = |number: usize| format!("host{number}.example");
    let mut ids: Vec<BackendId> = Vec::new();
    for number in 0..LIMIT - 1 {
        task.clock.set(begun + number as f64 / 1e5);
        ids.push(match number % 2 {
            0 => backend_of(&mut task, dynamic, invented(number), Value::Absent),
            _ => backend(&mut task, dynamic, number),
        });
    }
    task.clock.set(begun + 29.0);
    assert!(backend(&mut task, dynamic, LIMIT).is_none(), "each may still be needed");
    assert_eq!(backend(&mut task, dynamic, 1), ids[1]);
    assert_eq!(backend_of(&mut task, dynamic, invented(2), Value::Absent), ids[2]);

    task.clock.set(begun + 31.0);
    let exists = |id: BackendId| vcl.directors.get(id).is_some();
    assert!(exists(backend(&mut task, dynamic, LIMIT)));
    let replaced: Vec<usize> = (0..ids.len()).filter(|number| !exists(ids[*number])).collect();
    assert_eq!(replaced, [0], "the oldest one without an address");
    let further = (1..LIMIT).take_while(|number| exists(backend(&mut task, dynamic, LIMIT + number))).count();
    assert_eq!(further, LIMIT / 2 - 2, "all of them but the used one");
    assert!(ids.iter().enumerate().all(|(number, id)| exists(*id) == (number == 2 || number % 2 != 0)));

    task.clock.set(begun + 62.0);
    for (number, gone) in [(2 * LIMIT, 2), (2 * LIMIT + 1, 3), (2 * LIMIT + 2, 5)] {
        assert!(exists(ids[gone]));
        assert!(exists(backend(&mut task, dynamic, number)));
        assert!(!exists(ids[gone]), "{gone} is replaced next");
    }
    assert_eq!(backend(&mut task, dynamic, 1), ids[1], "a used host keeps its backend");
    assert!(exists(busy), "a backend with requests is not replaced");
    assert_eq!(vcl.directors.all().len(), LIMIT);
}
