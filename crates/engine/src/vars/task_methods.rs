//! The methods that the hosts of requests and of fetches share. They forward a call to the transaction.

/// Expands to these methods in an `impl Host`. The type must have the fields `task` and `response`, the latter with
/// `status`, `reason` and `body`. `$body` is the variable for the body that VCL sets.
macro_rules! task_methods {
    ($body:path) => {
        fn method(&self) -> Method {
            self.task.method()
        }

        fn now(&self) -> f64 {
            self.task.now()
        }

        fn real_now(&self) -> f64 {
            clock::real()
        }

        fn alloc(&mut self, bytes: usize) -> Option<&mut [u8]> {
            self.task.alloc(bytes)
        }

        fn copy(&mut self, bytes: &[u8]) -> Option<&[u8]> {
            self.task.copy(bytes)
        }

        fn get_bool(&mut self, var: Var) -> bool {
            vars::get_bool(self, var)
        }

        fn get_int(&mut self, var: Var) -> i64 {
            vars::get_int(self, var)
        }

        fn get_real(&mut self, var: Var) -> f64 {
            vars::get_real(self, var)
        }

        fn get_str(&mut self, var: Var) -> Option<&[u8]> {
            vars::get_str(self, var)
        }

        fn get_backend(&mut self, var: Var) -> BackendId {
            vars::get_backend(self, var)
        }

        fn get_stevedore(&mut self, var: Var) -> u32 {
            vars::get_stevedore(self, var)
        }

        fn set_bool(&mut self, var: Var, value: bool) -> HostResult<()> {
            vars::set_bool(self, var, value)
        }

        fn set_real(&mut self, var: Var, value: f64) -> HostResult<()> {
            vars::set_real(self, var, value)
        }

        fn set_str(&mut self, var: Var, value: Option<&[u8]>) -> HostResult<()> {
            vars::set_str(self, var, value)
        }

        fn unset(&mut self, var: Var) -> HostResult<()> {
            vars::unset(self, var)
        }

        fn storage_var(&mut self, name: &str, var: Var) -> i64 {
            storage::value(self.task.services().stevedores(), name, var)
        }

        fn stevedore_by_name(&mut self, name: &str) -> u32 {
            storage::by_name(self.task.services().stevedores(), name)
        }

        fn stevedore_name(&mut self, number: u32) -> Option<&[u8]> {
            storage::name(self.task.services().stevedores(), number)
        }

        fn set_header(
            &mut self,
            http: HttpId,
            name: &instance::HeaderName,
            value: Option<&[u8]>,
        ) -> HostResult<()> {
            let features = self.task.params().feature;
            headers::set(&mut self.changeable(http)?, name.name.borrow(), value, features)
        }

        fn set_header_parts(
            &mut self,
            http: HttpId,
            name: &instance::HeaderName,
            parts: &[Str<'_>],
        ) -> HostResult<()> {
            let features = self.task.params().feature;
            headers::set_parts(&mut self.changeable(http)?, name.name.borrow(), parts, features)
        }

        fn unset_header(&mut self, http: HttpId, name: &instance::HeaderName) -> HostResult<()> {
            self.changeable(http)?.unset(name.name.borrow());
            Ok(())
        }

        fn collect_header(
            &mut self,
            http: HttpId,
            name: &instance::HeaderName,
            separator: &[u8],
        ) -> HostResult<()> {
            headers::collect(&mut self.changeable(http)?, name.name.borrow(), separator);
            Ok(())
        }

        fn append_header(&mut self, http: HttpId, name: &[u8], value: &[u8]) -> HostResult<()> {
            let features = self.task.params().feature;
            headers::append(&mut self.changeable(http)?, name, value, features)
        }

        fn edit_headers(
            &mut self,
            http: HttpId,
            edit: &mut dyn FnMut(&[u8]) -> HeaderEdit,
        ) -> HostResult<()> {
            let features = self.task.params().feature;
            let why = match self.changeable(http) {
                Ok(mut message) => return headers::edit(&mut message, edit, features),
                Err(why) => why,
            };
            match self.readable(http) {
                Some((message, ws)) => headers::inspect(message, ws, edit, why),
                None => Err(why),
            }
        }

        fn return_status(&mut self, status: i64, reason: Option<&[u8]>) -> HostResult<()> {
            headers::check_start(self.task.params().feature, "reason", reason.unwrap_or_default())?;
            self.response.status = status as u16;
            self.response.reason = match reason {
                None => fixed_text_table::reason_text(self.response.status),
                Some(_) => keep(self.task.ws_mut(), reason),
            };
            if self.response.reason.is_none() { Err("Workspace overflow".to_owned()) } else { Ok(()) }
        }

        fn log(&mut self, tag: u8, text: &[u8]) {
            self.task.put(tag, text);
        }

        fn log_as(&mut self, vxid: u64, tag: u8, text: &[u8]) {
            self.task.put_as(vxid, tag, text);
        }

        fn trace(&mut self, text: &str) {
            self.task.trace(text);
        }

        fn regex_limits(&self) -> RegexLimits {
            self.task.regex_limits()
        }

        fn fail(&mut self, text: &str) {
            self.task.fail(text);
        }

        fn timestamp(&mut self, label: &[u8]) {
            self.task.stamp(&String::from_utf8_lossy(label));
        }

        fn ban(&mut self, expression: &[u8]) -> Result<(), String> {
            let ticket =
                crate::bans::from_vcl(self.task.services().shared(), expression, self.task.source())?;
            self.task.await_recording(ticket);
            Ok(())
        }

        fn peer_credentials(&mut self) -> Option<(u32, u32)> {
            self.task.sess().credentials()
        }

        fn proxy_tlv(&mut self, kind: u8) -> Option<Vec<u8>> {
            self.task.proxy_tlv(kind)
        }

        fn workspace_free(&mut self, which: &str) -> Option<usize> {
            workspaces::free(&mut self.task, which)
        }

        fn workspace_alloc(&mut self, which: &str, bytes: usize) -> bool {
            workspaces::alloc(&mut self.task, which, bytes)
        }

        fn workspace_overflow(&mut self, which: &str) {
            workspaces::overflow(&mut self.task, which);
        }

        fn workspace_overflowed(&mut self, which: &str) -> bool {
            workspaces::overflowed(&mut self.task, which)
        }

        fn workspace_snapshot(&mut self, which: &str) {
            workspaces::snapshot(&mut self.task, which);
        }

        fn workspace_reset(&mut self, which: &str) {
            workspaces::reset(&mut self.task, which);
        }

        fn workspace_dump(
            &mut self,
            which: &str,
            at: u8,
            offset: usize,
            length: usize,
        ) -> HostResult<Vec<u8>> {
            workspaces::dump(&mut self.task, which, at, offset, length)
        }

        fn task_privates(&mut self) -> &mut PrivateMap {
            self.task.privates()
        }

        fn set_body(&mut self, var: Var, append: bool, content: &[u8]) -> HostResult<()> {
            if var != $body {
                return misplaced(var);
            }
            if !append {
                self.response.body.clear();
            }
            self.response.body.extend_from_slice(content);
            Ok(())
        }
    };
}
pub(crate) use task_methods;
