//! The life cycle of VCL programs in the worker: loading, warming and cooling, labels, discarding.
//!
//! All of it runs on the main thread, including the end of a discarded program, so that no reactor waits for it.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;

use lacquer_cli::link::VclState;
use lacquer_cli::status;
use lacquer_engine::InitHost;
use lacquer_engine::backends::Origin;
use lacquer_engine::vcl_table::{Entry, Temperature, Vcl};
use lacquer_shm::Segment;
use lacquer_shm::vsc::Vbe;
use lacquer_shm::vsm::Cluster;
use lacquer_vcl::program::Program;
use lacquer_vcl::types::Method;
use lacquer_vcl_native::LoadedVcl;
use lacquer_vcl_runtime::{Event, Instance};

use crate::control::Reply;
use crate::process::Process;
use crate::program_backends::{self, DeclaredBackends, Maker};

/// Loads a program, runs its `vcl_init`, and adds it to the table.
pub fn load(process: &Arc<Process>, name: &str, program: &[u8], state: VclState, warm: bool) -> Reply {
    let (loaded, origins, cluster) = match build(process, name, program) {
        Ok(built) => built,
        Err(why) => return Reply::error(status::PARAM, why),
    };
    let mut host = InitHost::new(process.shared().clone(), Method::Init);
    if let Err(why) = loaded.init(&mut host) {
        return cancel(process, &loaded, name, ("initialization", &(host.into_failures() + &why)));
    }
    let vcl = Arc::new(Vcl::new(name.to_owned(), loaded, (origins, cluster), state));
    vcl.set_temperature(Temperature::Cold);
    if warm && let Err(why) = warm_up(process, &vcl) {
        return cancel(process, &vcl.loaded, name, ("warmup", &why));
    }
    let mut warnings = vcl.loaded.instance().take_warnings();
    warnings.extend(program_backends::first_addresses(vcl.loaded.instance()));
    for warning in &warnings {
        eprintln!("VCL {name}: {warning}");
    }
    process.shared().vcls().add(vcl);
    publish(process);
    Reply::ok(warnings.iter().fold(format!("Loaded \"{name}\""), |text, warning| text + "\n" + warning))
}

type Origins = Vec<Arc<Origin>>;

fn build(
    process: &Arc<Process>,
    name: &str,
    program: &[u8],
) -> Result<(LoadedVcl, Origins, Option<Cluster>), String> {
    let program: Program = postcard::from_bytes(program)
        .map_err(|e| format!("Could not load compiled VCL.\n\t{e}: do manager and worker differ?\n"))?;
    if program.modules.imports.iter().any(|import| import.module == "xkey") {
        process.show_tag_counters();
    }
    // The counters of all backends of a program are in one file.
    let size = program.origins.backends.len() * Segment::<Vbe>::size().next_multiple_of(8);
    let cluster = process.vsm().cluster(size, "vcl").ok();
    let mut backends = DeclaredBackends::of(&program, process, name, cluster.as_ref());
    let params = process.shared().params();
    let mut instance = Instance::new(name, program, lacquer_vmods::all(), params.pcre2_jit_compilation)?;
    instance.add_backends(|spec| backends.make(spec));
    instance.set_backend_maker(Arc::new(Maker(Arc::downgrade(process))));
    let origins = backends.finish()?;
    Ok((lacquer_vcl_native::compile(instance)?, origins, cluster))
}

/// Ends a program that could not be loaded, like a discarded one.
fn cancel(process: &Process, loaded: &LoadedVcl, name: &str, (step, message): (&str, &str)) -> Reply {
    end(process, loaded);
    let mut text = format!("VCL \"{name}\" Failed {step}");
    if !message.is_empty() {
        let _ = write!(text, "\nMessage:\n\t{message}");
    }
    Reply::error(status::CANT, text)
}

/// Warms a cold program.
fn warm_up(process: &Arc<Process>, vcl: &Vcl) -> Result<(), String> {
    vcl.set_temperature(Temperature::Warm);
    if let Err(why) = vcl.loaded.event(Event::Warm) {
        let _ = vcl.loaded.event(Event::Cold);
        vcl.set_temperature(Temperature::Cold);
        return Err(why);
    }
    program_backends::warm_up(vcl.loaded.instance(), process);
    Ok(())
}

/// Cools a warm program that no task uses.
fn cool_down(process: &Process, vcl: &Vcl) {
    vcl.set_temperature(Temperature::Cold);
    program_backends::cool_down(vcl.loaded.instance(), process);
    // A VMOD's error is ignored: it cannot keep a program warm.
    let _ = vcl.loaded.event(Event::Cold);
}

fn unknown(name: &str) -> Reply {
    Reply::error(status::PARAM, format!("No VCL named {name} known\n"))
}

pub fn label(process: &Process, label: &str, target: &str) -> Reply {
    match process.shared().vcls().find(target) {
        Some(entry) => {
            process.shared().vcls().label(label, entry.program().clone());
            Reply::ok("")
        }
        None => unknown(target),
    }
}

pub fn use_for_new(process: &Process, name: &str) -> Reply {
    if process.shared().vcls().find(name).is_none() {
        return unknown(name);
    }
    process.shared().vcls().use_for_new(name);
    Reply::ok("")
}

/// Sets the state that the user has requested, and changes the temperature as far as possible now.
pub fn set_state(process: &Arc<Process>, name: &str, state: VclState, warm: bool) -> Reply {
    let Some(Entry::Program(vcl)) = process.shared().vcls().find(name) else { return unknown(name) };
    let changed = match (warm, vcl.temperature()) {
        (false, Temperature::Cold) | (true, Temperature::Warm) => Ok(()),
        (false, _) => {
            vcl.set_temperature(Temperature::Busy);
            if vcl.busy() == 0 {
                cool_down(process, &vcl);
            }
            Ok(())
        }
        // Its backends and VMODs were not cooled yet.
        (true, Temperature::Busy) => {
            vcl.set_temperature(Temperature::Warm);
            Ok(())
        }
        (true, Temperature::Cooling) => Err(format!("VCL {name} is waiting for:")),
        (true, _) => warm_up(process, &vcl),
    };
    match changed {
        Ok(()) => {
            vcl.set_state(state);
            Reply::ok("")
        }
        Err(why) => {
            let text = format!("Failed <vcl.state {name} {}>\nMessage:\n\t{why}", state.word());
            Reply::error(status::CANT, text)
        }
    }
}

pub fn discard(process: &Arc<Process>, name: &str) -> Reply {
    if process.shared().vcls().discard(name).is_none() {
        return unknown(name);
    }
    poll(process);
    Reply::ok("")
}

/// Continues cooling and discarding programs that waited for tasks to end.
pub fn poll(process: &Arc<Process>) {
    for entry in process.shared().vcls().entries() {
        if let Entry::Program(vcl) = entry
            && vcl.temperature() == Temperature::Busy
            && vcl.busy() == 0
        {
            cool_down(process, &vcl);
        }
    }
    process.shared().vcls().reap().iter().for_each(|vcl| finish(process, vcl));
    publish(process);
}

/// Ends a discarded program that no task uses any more.
fn finish(process: &Arc<Process>, vcl: &Vcl) {
    if !matches!(vcl.temperature(), Temperature::Cold | Temperature::Init) {
        cool_down(process, vcl);
    }
    end(process, &vcl.loaded);
}

/// Runs `vcl_fini` and passes the event to the modules.
fn end(process: &Process, loaded: &LoadedVcl) {
    loaded.fini(&mut InitHost::new(process.shared().clone(), Method::Fini));
}

fn programs(process: &Process) -> impl Iterator<Item = Arc<Vcl>> {
    let present = process.shared().vcls().entries().into_iter().filter_map(|entry| match entry {
        Entry::Program(vcl) => Some(vcl),
        Entry::Label { .. } => None,
    });
    present.chain(process.shared().vcls().leaving())
}

/// Returns the origins of all programs.
#[cfg(feature = "simulated")]
pub fn origins(process: &Process) -> Vec<Arc<Origin>> {
    programs(process).flat_map(|vcl| vcl.origins.clone()).collect()
}

/// Returns the VMODs that programs import, each with the number of these programs.
pub fn modules_in_use(process: &Process) -> BTreeMap<&'static str, usize> {
    let mut users = BTreeMap::new();
    for vcl in programs(process) {
        let mut names: Vec<&str> = vcl.loaded.instance().imports.modules.iter().map(|m| m.name()).collect();
        names.sort_unstable();
        names.dedup();
        for name in names {
            *users.entry(name).or_default() += 1;
        }
    }
    users
}

fn publish(process: &Process) {
    let leaving = process.shared().vcls().leaving().len() as u64;
    let all = programs(process).count() as u64;
    let backends = programs(process).map(|vcl| vcl.origins.len() as u64).sum();
    let c = process.shared().counters();
    c.n_vcl.set(all);
    c.n_vcl_discard.set(leaving);
    c.n_vcl_avail.set(all.saturating_sub(leaving));
    c.n_backend.set(backends);
    c.vmods.set(modules_in_use(process).len() as u64);
}
