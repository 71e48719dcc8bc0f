//! `import module [as name] [from "path"];`
//!
//! Modules are part of Lacquer, so a path only has to be plausible. The catalogue determines the module.

use std::rc::Rc;

use crate::compiler::{Compiler, Mention, Mode, Module, ObjectType, Res};
use crate::lexer::Tok;
use crate::program::Import;
use crate::signature::ModuleSignatures;
use crate::symbols::{Callable, Fmt, Kind, Meaning, SymbolId, TokenId};
use crate::types::Method;

impl Compiler<'_> {
    pub fn parse_import(&mut self) -> Res<()> {
        let first = self.t;
        self.advance();
        self.want(Tok::Id)?;
        let module = self.t;
        if self.is_word(module + 1, "as") {
            self.advance();
            self.advance();
            self.want(Tok::Id)?;
        }
        let name = self.t;
        let symbol = self.some_symbol(Kind::Vmod, Mode::Create, Mention::Nothing)?;
        let path = self.import_path()?;
        self.skip(Tok::Semi)?;
        let module_name = self.text(module);
        let signatures = self.find_module(module, path)?;
        let known = self.imported.modules.iter().find(|m| m.symbol == symbol || m.name == module_name);
        let known = known.map(|m| (m.symbol, m.name.clone(), m.import, Rc::clone(&m.signatures)));
        let taken = self.symbols.list[symbol].mentions.defined.is_some();
        if taken {
            let same = self.imported.modules.iter().any(|m| m.symbol == symbol && m.name == module_name);
            if same {
                return Ok(());
            }
            let message = format!("Another module already imported as {}.\n", self.text(name));
            return self.fail_range(message, first, self.t);
        }
        self.symbols.list[symbol].mentions.defined = Some(first);
        self.symbols.list[symbol].mentions.may_be_unused = true;
        let alias = self.symbols.name(symbol).to_owned();
        // A module has one state, even if it is imported under several names.
        let (import, signatures) = match known {
            Some((_, old, import, signatures)) if old == module_name => (import, signatures),
            _ => {
                let import = self.program.modules.imports.len() as u32;
                self.program
                    .modules
                    .imports
                    .push(Import { module: module_name.to_owned(), alias: alias.clone() });
                (import, Rc::new(signatures))
            }
        };
        self.declare_module(&alias, import, &signatures);
        self.imported.modules.push(Module { name: module_name.to_owned(), symbol, import, signatures });
        Ok(())
    }

    fn import_path(&mut self) -> Res<Option<TokenId>> {
        if self.now() != Tok::Id {
            return Ok(None);
        }
        if self.text(self.t) != "from" {
            return self.fail("Expected 'from path ...'\n", self.t);
        }
        self.advance();
        if self.now() == Tok::Cstr && !self.input.options.unsafe_path && self.content(self.t).contains(&b'/')
        {
            let quoted = self.quoted(self.t);
            let message = format!("'import ... from path ...' is unsafe.\nAt:{quoted}");
            return self.fail(message, self.t);
        }
        self.want(Tok::Cstr)?;
        let path = self.t;
        self.advance();
        Ok(Some(path))
    }

    fn find_module(&mut self, module: TokenId, path: Option<TokenId>) -> Res<ModuleSignatures> {
        let name = self.text(module);
        if let Some(path) = path {
            let path = self.content_text(path);
            let file = path.rsplit('/').next().unwrap_or_default();
            let contains = file.strip_prefix("libvmod_").and_then(|f| f.strip_suffix(".so"));
            if let Some(contains) = contains.filter(|c| *c != name) {
                self.show(module);
                let message = format!(
                    "Wrong file for VMOD {name}\n\tFile name: {path}\n\tContains vmod \"{contains}\"\n"
                );
                return self.fail_unplaced(message, module);
            }
        }
        match self.input.options.catalogue.module(name) {
            Some(signatures) => Ok(signatures),
            None => {
                let names = self.input.options.catalogue.names();
                let absent = crate::hints::for_absent_module(name);
                let hint = match (absent, lacquer_params::nearest(name, names.iter().copied())) {
                    (Some(instead), _) => format!("there is no module {name} here; {instead}"),
                    (None, Some(near)) => format!("did you mean '{near}'?"),
                    (None, None) => format!(
                        "modules compiled for Varnish cannot be loaded; built in are {}",
                        names.join(", ")
                    ),
                };
                self.hint(hint);
                self.fail(format!("Could not find VMOD {name}\n"), module)
            }
        }
    }

    fn declare_module(&mut self, alias: &str, import: u32, module: &ModuleSignatures) {
        for signature in &module.functions {
            let name = format!("{alias}.{}", signature.name);
            let signature = Rc::new(signature.clone());
            self.declare_function(&name, Callable { import, object: String::new(), signature });
        }
        for (old, new) in &module.aliases {
            if let Some(signature) = module.function(new) {
                let signature = Rc::new(signature.clone());
                let name = format!("{alias}.{old}");
                self.declare_function(&name, Callable { import, object: String::new(), signature });
            }
        }
        for object in &module.objects {
            let signature = Rc::new(object.clone());
            let fmt = Fmt::Object(self.imported.object_types.len() as u32);
            let type_name = format!("{}.{}", module.name, object.name);
            self.imported.object_types.push(ObjectType {
                name: type_name,
                import,
                signature: Rc::clone(&signature),
            });
            let meaning = Meaning::Object { import, signature, fmt };
            let symbol = self.declare(&format!("{alias}.{}", object.name), Kind::Object, fmt, meaning);
            self.symbols.list[symbol].access.read = 1 << Method::Init as u32;
            for method in &object.methods {
                let name = format!("{alias}.{}.{}", object.name, method.name);
                self.declare(&name, Kind::Method, Fmt::from(method.returns), Meaning::Method);
            }
        }
    }

    fn declare_function(&mut self, name: &str, callable: Callable) {
        let read = callable.signature.readable();
        let fmt = Fmt::from(callable.signature.returns);
        let symbol = self.declare(name, Kind::Func, fmt, Meaning::Function(callable));
        self.symbols.list[symbol].access.read = read;
    }

    fn declare(&mut self, name: &str, kind: Kind, fmt: Fmt, meaning: Meaning) -> SymbolId {
        self.symbols.add_predefined(name, kind, fmt, meaning)
    }
}
