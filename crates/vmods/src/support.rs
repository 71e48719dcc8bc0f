//! Common parts of all modules: the table that implements [`Module`], and functions for results and logging.

use lacquer_shm::Tag;
use lacquer_vcl::types::Method;
use lacquer_vcl_runtime::{
    Args, BackendId, Ctx, Event, Func, Instance, Module, ModuleError, ObjectType, Regex, RegexLimits,
    SubFault, Value,
};

pub(crate) type CallResult<'a> = Result<Value<'a>, ModuleError>;

/// A module as a constant.
pub(crate) struct Table {
    pub name: &'static str,
    pub functions: &'static [(&'static str, Func)],
    pub objects: &'static [ObjectType],
    pub suspends: &'static [&'static str],
}

impl Module for Table {
    fn name(&self) -> &'static str {
        self.name
    }

    fn functions(&self) -> &'static [(&'static str, Func)] {
        self.functions
    }

    fn objects(&self) -> &'static [ObjectType] {
        self.objects
    }

    fn suspends(&self) -> &'static [&'static str] {
        self.suspends
    }
}

/// A module that takes part in events of the programs that import it.
pub(crate) struct WithEvents {
    pub table: Table,
    pub event: fn(&Instance, Event) -> Result<(), ModuleError>,
}

impl Module for WithEvents {
    fn name(&self) -> &'static str {
        self.table.name
    }

    fn functions(&self) -> &'static [(&'static str, Func)] {
        self.table.functions
    }

    fn objects(&self) -> &'static [ObjectType] {
        self.table.objects
    }

    fn suspends(&self) -> &'static [&'static str] {
        self.table.suspends
    }

    fn event(&self, vcl: &Instance, event: Event) -> Result<(), ModuleError> {
        (self.event)(vcl, event)
    }
}

/// The result of a VOID function.
pub(crate) const DONE: CallResult<'static> = Ok(Value::Absent);

/// Copies the bytes into the workspace. Returns undefined if that is full (the host records the overflow).
pub(crate) fn text<'a>(ctx: &mut Ctx<'a>, bytes: &[u8]) -> CallResult<'a> {
    Ok(Value::Str(ctx.try_copy(bytes)))
}

pub(crate) fn log(ctx: &mut Ctx<'_>, tag: Tag, text: impl AsRef<[u8]>) {
    ctx.host.log(tag as u8, text.as_ref());
}

/// Returns the VCL name of a backend or director, or an empty text for none.
pub(crate) fn director_name(vcl: &Instance, id: BackendId) -> String {
    vcl.directors.get(id).map_or_else(String::new, |cell| cell.director.name().to_owned())
}

/// Returns whether a subroutine of a fetch runs. vcl_pipe belongs to the client's side.
pub(crate) fn is_backend_side(method: Method) -> bool {
    lacquer_vcl::variables_table::BACKEND & (1 << method as u32) != 0
}

/// Returns the name of the workspace for strings of this task.
fn workspace(ctx: &Ctx<'_>) -> &'static str {
    if is_backend_side(ctx.method()) { "backend" } else { "client" }
}

/// Returns the free bytes of the workspace; without a workspace, there is no limit.
pub(crate) fn free_workspace(ctx: &mut Ctx<'_>) -> usize {
    ctx.host.workspace_free(workspace(ctx)).unwrap_or(usize::MAX)
}

/// Records an overflow of the workspace.
pub(crate) fn overflow(ctx: &mut Ctx<'_>) {
    ctx.host.workspace_overflow(workspace(ctx));
}

/// Copies into the workspace, for functions that report a full workspace themselves: no overflow is recorded.
pub(crate) fn copy_if_room<'a>(ctx: &mut Ctx<'a>, bytes: &[u8]) -> Option<&'a [u8]> {
    if bytes.len() >= free_workspace(ctx) {
        return None;
    }
    ctx.try_copy(bytes)
}

/// Returns the version of the program, as a module's own.
pub(crate) fn version<'a>(_ctx: &mut Ctx<'a>, _args: &Args<'a>) -> CallResult<'a> {
    Ok(Value::Str(Some(concat!("Lacquer ", env!("CARGO_PKG_VERSION")).as_bytes())))
}

/// Returns whether a subroutine that an object has chosen may be called now. Logs the reason if it may not, or if none
/// was chosen.
pub(crate) fn check_call<'a>(
    ctx: &mut Ctx<'a>,
    args: &Args<'a>,
    module: &str,
    sub: Result<u32, ModuleError>,
) -> CallResult<'a> {
    let checked = sub.map(|sub| ctx.check_sub(Some(sub)));
    let why = match &checked {
        Ok(Ok(())) => return Ok(Value::Bool(true)),
        Ok(Err(SubFault::Missing)) => "no such subroutine",
        Ok(Err(SubFault::Method)) => "the subroutine is not allowed here",
        Ok(Err(SubFault::Recursion)) => "the subroutine is running already",
        Ok(Err(SubFault::Depth)) => "calls nest too deeply",
        Err(ModuleError(text)) => text,
    };
    log(ctx, Tag::Notice, format!("vmod_{module}: {}.check_call(): {why}", args.object_name));
    Ok(Value::Bool(false))
}

/// Returns a string argument for messages; undefined becomes empty.
pub(crate) fn shown(bytes: Option<&[u8]>) -> std::borrow::Cow<'_, str> {
    String::from_utf8_lossy(bytes.unwrap_or_default())
}

/// Returns an ENUM argument. The front end accepts only its words.
pub(crate) fn word<'a>(args: &Args<'a>, i: usize) -> &'a str {
    args.str(i).and_then(|s| std::str::from_utf8(s).ok()).unwrap_or_default()
}

/// Returns whether a pattern matches a text. Fails like `~` in VCL if the text exceeds a limit: otherwise a client could
/// send a text that no filter finds.
pub(crate) fn is_match(regex: &Regex, subject: &[u8], limits: RegexLimits) -> Result<bool, ModuleError> {
    regex.is_match(subject, limits).map_err(|error| format!("Regexp matching failed: {error}").into())
}
