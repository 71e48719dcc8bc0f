//! The limit of the hosts of a dynamic director.

use std::sync::Arc;

use lacquer_names::{Name, Refresh};
use lacquer_shm::VsmDir;
use lacquer_vcl::types::Method;
use lacquer_vcl_runtime::{BackendId, BackendMaker, Director, Instance, NewBackend, Value};

use crate::host::{Leaf, Object, Task, instance};

const LIMIT: usize = 10_000;
const USAGE_TIMEOUT: f64 = 10.0;

/// Makes backends without connections.
struct Maker;

impl BackendMaker for Maker {
    fn make(&self, _vcl: &Instance, backend: NewBackend) -> Result<Arc<dyn Director>, String> {
        Ok(Arc::new(Leaf { name: backend.spec.name, healthy: true }))
    }

    fn watch_service(&self, _service: &str, _refresh: Refresh) -> Result<Arc<Name>, String> {
        Err("there is no name service".to_owned())
    }

    fn shared_memory(&self) -> Result<VsmDir, String> {
        Err("there is no shared memory".to_owned())
    }
}

/// Creates a director whose hosts rest after [`USAGE_TIMEOUT`].
fn director(task: &mut Task) -> Object {
    let mut values = vec![Value::Absent; 23];
    values[0] = Value::Str(Some(b"80"));
    for i in [5, 10, 15] {
        values[i] = Value::Duration(10.0);
    }
    values[9] = Value::Duration(USAGE_TIMEOUT);
    task.make("dynamic.director", "d", &values)
}

/// Returns the backend for the host with a number, or none if it is refused.
fn backend(task: &mut Task, director: Object, number: usize) -> BackendId {
    let host = format!("10.0.{}.{}", number >> 8, number & 255).leak();
    let values = [Value::Str(Some(host.as_bytes())), Value::Absent, Value::Absent];
    match director.call(task, "backend", &values) {
        Ok(Value::Backend(id)) => id,
        _ => panic!("not a backend"),
    }
}

#[test]
fn a_further_host_replaces_one_that_is_not_in_use() {
    let vcl = instance();
    vcl.set_backend_maker(Arc::new(Maker));
    let mut task = Task::new(Method::Recv, vcl);
    let (begun, dynamic) = (task.clock.get(), director(&mut task));
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
