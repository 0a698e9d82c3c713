//! The names in functions: their parameters and the values that they bind, each with the type that is written beside it.

use super::source::is_test_only;
use proc_macro2::Span;
use syn::visit::{self, Visit};
use syn::{
    Expr, FnArg, ImplItemFn, ItemFn, ItemMod, Pat, ReturnType, Signature, TraitItemFn, Type,
};

/// A name that a pattern binds in a signature, a closure or a body.
pub(super) struct Local {
    pub(super) name: String,
    pub(super) line: usize,
    /// The last segment of its type, without references, `Option`, `Rc`, `Arc`, `Box` and `Deferred`; empty where none is written.
    pub(super) type_name: String,
    pub(super) is_parameter: bool,
    /// The field that a pattern `Struct { field: name }` gives this other name; empty for all else.
    pub(super) renamed_field: String,
}

/// A type in a signature that a reader has to take apart.
pub(super) struct UnclearType {
    pub(super) function: String,
    pub(super) line: usize,
    pub(super) advice: &'static str,
}

/// A word in backticks in the doc of a function, as a name is written.
pub(super) struct DocWord {
    pub(super) word: String,
    pub(super) line: usize,
    /// First and last line of the function.
    pub(super) function: (usize, usize),
}

#[derive(Default)]
pub(super) struct Bindings {
    pub(super) locals: Vec<Local>,
    pub(super) unclear_types: Vec<UnclearType>,
    pub(super) doc_words: Vec<DocWord>,
}

/// Returns what `file` binds outside its tests.
pub(super) fn bindings(file: &syn::File) -> Bindings {
    let mut reader = Reader(Bindings::default());
    reader.visit_file(file);
    reader.0
}

struct Reader(Bindings);

impl Reader {
    fn bind(&mut self, pattern: &Pat, type_name: &str, is_parameter: bool) {
        self.bind_field(pattern, type_name, is_parameter, "");
    }

    fn bind_field(&mut self, pattern: &Pat, type_name: &str, is_parameter: bool, field: &str) {
        match pattern {
            Pat::Ident(binding) => {
                let name = binding.ident.to_string();
                // A unit variant or a constant, such as `None`, is no name that the pattern gives.
                if name.starts_with(char::is_uppercase) {
                    return;
                }
                self.0.locals.push(Local {
                    renamed_field: if name == field { String::new() } else { field.to_owned() },
                    name,
                    line: binding.ident.span().start().line,
                    type_name: type_name.to_owned(),
                    is_parameter,
                });
                if let Some((_, pattern)) = &binding.subpat {
                    self.bind(pattern, "", is_parameter);
                }
            }
            Pat::Type(typed) => {
                let type_name = own_type(&typed.ty).unwrap_or_default();
                self.bind_field(&typed.pat, &type_name, is_parameter, field);
            }
            Pat::Reference(inner) => self.bind_field(&inner.pat, type_name, is_parameter, field),
            Pat::Paren(inner) => self.bind_field(&inner.pat, type_name, is_parameter, field),
            Pat::Struct(pattern) => {
                for field in &pattern.fields {
                    let name = match &field.member {
                        syn::Member::Named(name) => name.to_string(),
                        syn::Member::Unnamed(_) => String::new(),
                    };
                    self.bind_field(&field.pat, "", is_parameter, &name);
                }
            }
            Pat::Tuple(pattern) => self.bind_all(&pattern.elems, is_parameter),
            Pat::TupleStruct(pattern) => self.bind_all(&pattern.elems, is_parameter),
            Pat::Slice(pattern) => self.bind_all(&pattern.elems, is_parameter),
            // All cases of an `or` bind the same names.
            Pat::Or(pattern) => self.bind(&pattern.cases[0], type_name, is_parameter),
            _ => {}
        }
    }

    fn bind_all<'a>(&mut self, patterns: impl IntoIterator<Item = &'a Pat>, is_parameter: bool) {
        for pattern in patterns {
            self.bind(pattern, "", is_parameter);
        }
    }

    fn add_doc(&mut self, attributes: &[syn::Attribute], signature: &Signature, end: Span) {
        let lines = (signature.fn_token.span.start().line, end.end().line);
        for (word, line) in doc_words(attributes) {
            self.0.doc_words.push(DocWord { word, line, function: lines });
        }
    }

    fn add_signature(&mut self, signature: &Signature) {
        let mut unclear = |advice| {
            self.0.unclear_types.push(UnclearType {
                function: signature.ident.to_string(),
                line: signature.ident.span().start().line,
                advice,
            });
        };
        for input in &signature.inputs {
            if let FnArg::Typed(input) = input {
                if is_tuple(&input.ty) {
                    unclear("a tuple as a parameter: pass its parts, or name a type");
                }
                if is_nested(&input.ty) {
                    unclear("a nested `Option` or `Result`: name a type");
                }
            }
        }
        if let ReturnType::Type(_, ty) = &signature.output
            && is_nested(ty)
        {
            unclear("a nested `Option` or `Result`: name a type, or make two functions");
        }
        for input in &signature.inputs {
            if let FnArg::Typed(input) = input {
                let type_name = own_type(&input.ty).unwrap_or_default();
                self.bind(&input.pat, &type_name, true);
            }
        }
    }
}

/// The words in backticks of a doc comment that could name a parameter: lower-case letters, digits and `_`.
fn doc_words(attributes: &[syn::Attribute]) -> Vec<(String, usize)> {
    let mut names = Vec::new();
    for attribute in attributes.iter().filter(|attribute| attribute.path().is_ident("doc")) {
        if let syn::Meta::NameValue(doc) = &attribute.meta
            && let Expr::Lit(literal) = &doc.value
            && let syn::Lit::Str(text) = &literal.lit
        {
            let line = attribute.pound_token.span.start().line;
            let text = text.value();
            for word in text.split('`').skip(1).step_by(2) {
                let is_name = word.starts_with(|first: char| first.is_ascii_lowercase())
                    && word.chars().all(|character| {
                        character.is_ascii_lowercase()
                            || character.is_ascii_digit()
                            || character == '_'
                    });
                if is_name {
                    names.push((word.to_owned(), line));
                }
            }
        }
    }
    names
}

/// The last segment of a path and its first generic argument that is a type.
fn outer_type(ty: &Type) -> Option<(String, Vec<&Type>)> {
    let ty = match ty {
        Type::Reference(reference) => return outer_type(&reference.elem),
        Type::Paren(paren) => return outer_type(&paren.elem),
        Type::Path(path) => path.path.segments.last()?,
        _ => return None,
    };
    let arguments = match &ty.arguments {
        syn::PathArguments::AngleBracketed(arguments) => (arguments.args.iter())
            .filter_map(|argument| match argument {
                syn::GenericArgument::Type(ty) => Some(ty),
                _ => None,
            })
            .collect(),
        _ => Vec::new(),
    };
    Some((ty.ident.to_string(), arguments))
}

fn own_type(ty: &Type) -> Option<String> {
    let (name, arguments) = outer_type(ty)?;
    match (name.as_str(), arguments.first()) {
        ("Option" | "Rc" | "Arc" | "Box" | "Deferred", Some(inner)) => own_type(inner),
        _ => Some(name),
    }
}

fn is_tuple(ty: &Type) -> bool {
    match ty {
        Type::Reference(reference) => is_tuple(&reference.elem),
        Type::Tuple(tuple) => tuple.elems.len() > 1,
        _ => false,
    }
}

/// True for `Option<Option<_>>`, `Result<Result<_>>` and the like, to any depth: `Result<Option<_>>` alone is usual.
fn is_nested(ty: &Type) -> bool {
    let mut chain = Vec::new();
    let mut current = Some(ty);
    while let Some(ty) = current {
        let Some((name, arguments)) = outer_type(ty) else { break };
        if !["Option", "Result"].contains(&name.as_str()) {
            break;
        }
        chain.push(name);
        current = arguments.first().copied();
    }
    chain.len() > 2 || (chain.len() == 2 && chain[0] == chain[1])
}

impl<'ast> Visit<'ast> for Reader {
    fn visit_item_mod(&mut self, item: &'ast ItemMod) {
        if !is_test_only(&item.attrs) {
            visit::visit_item_mod(self, item);
        }
    }

    fn visit_item_fn(&mut self, item: &'ast ItemFn) {
        if !is_test_only(&item.attrs) {
            self.add_signature(&item.sig);
            self.add_doc(&item.attrs, &item.sig, item.block.brace_token.span.close());
            visit::visit_item_fn(self, item);
        }
    }

    fn visit_impl_item_fn(&mut self, item: &'ast ImplItemFn) {
        if !is_test_only(&item.attrs) {
            self.add_signature(&item.sig);
            self.add_doc(&item.attrs, &item.sig, item.block.brace_token.span.close());
            visit::visit_impl_item_fn(self, item);
        }
    }

    fn visit_trait_item_fn(&mut self, item: &'ast TraitItemFn) {
        self.add_signature(&item.sig);
        self.add_doc(&item.attrs, &item.sig, item.sig.paren_token.span.close());
        visit::visit_trait_item_fn(self, item);
    }

    fn visit_local(&mut self, local: &'ast syn::Local) {
        let type_name = local.init.as_ref().and_then(|init| constructed_type(&init.expr));
        self.bind(&local.pat, &type_name.unwrap_or_default(), false);
        visit::visit_local(self, local);
    }

    fn visit_arm(&mut self, arm: &'ast syn::Arm) {
        self.bind(&arm.pat, "", false);
        visit::visit_arm(self, arm);
    }

    fn visit_expr_let(&mut self, condition: &'ast syn::ExprLet) {
        self.bind(&condition.pat, "", false);
        visit::visit_expr_let(self, condition);
    }

    fn visit_expr_for_loop(&mut self, repeat: &'ast syn::ExprForLoop) {
        self.bind(&repeat.pat, "", false);
        visit::visit_expr_for_loop(self, repeat);
    }

    fn visit_expr_closure(&mut self, closure: &'ast syn::ExprClosure) {
        self.bind_all(&closure.inputs, false);
        visit::visit_expr_closure(self, closure);
    }
}

/// The type that `Type { … }` or `Type::function(…)` makes.
fn constructed_type(value: &Expr) -> Option<String> {
    let name = match value {
        Expr::Reference(value) => return constructed_type(&value.expr),
        Expr::Try(value) => return constructed_type(&value.expr),
        Expr::Struct(value) => value.path.segments.last()?.ident.to_string(),
        Expr::Call(call) => match &*call.func {
            Expr::Path(function) if function.path.segments.len() > 1 => {
                function.path.segments.iter().nth_back(1)?.ident.to_string()
            }
            _ => return None,
        },
        _ => return None,
    };
    name.starts_with(char::is_uppercase).then_some(name)
}
