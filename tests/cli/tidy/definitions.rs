//! Everything that one source file names, outside its tests: types, functions, modules, fields, variants, constants.

use super::source::is_test_only;
use syn::visit::{self, Visit};
use syn::{
    Expr, ImplItemConst, ImplItemFn, Item, ItemConst, ItemEnum, ItemFn, ItemMod, ItemStatic,
    ItemStruct, ItemTrait, ItemType, TraitItemConst, TraitItemFn, Type,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DefinitionKind {
    Type,
    Function,
    Module,
    Field,
    Variant,
    Constant,
}

pub(super) struct Definition {
    pub(super) kind: DefinitionKind,
    pub(super) name: String,
    pub(super) line: usize,
    /// The last segment of a constant's type; empty for everything else.
    pub(super) constant_type: String,
    /// True for a constant whose value is a shift, as in `64 << 10`: a number of bytes.
    pub(super) is_shifted: bool,
}

/// Returns the definitions of `file`, in the order of its lines.
pub(super) fn definitions(file: &syn::File) -> Vec<Definition> {
    let mut reader = Reader(Vec::new());
    reader.visit_file(file);
    reader.0
}

struct Reader(Vec<Definition>);

impl Reader {
    fn add(&mut self, kind: DefinitionKind, name: &syn::Ident) {
        self.0.push(Definition {
            kind,
            name: name.to_string(),
            line: name.span().start().line,
            constant_type: String::new(),
            is_shifted: false,
        });
    }

    fn add_constant(&mut self, name: &syn::Ident, ty: &Type, value: Option<&Expr>) {
        self.add(DefinitionKind::Constant, name);
        let definition = self.0.last_mut().expect("pushed above");
        if let Type::Path(path) = ty {
            let last = path.path.segments.last();
            definition.constant_type = last.map_or_else(String::new, |part| part.ident.to_string());
        }
        definition.is_shifted =
            matches!(value, Some(Expr::Binary(binary)) if matches!(binary.op, syn::BinOp::Shl(_)));
    }
}

impl<'ast> Visit<'ast> for Reader {
    fn visit_item(&mut self, item: &'ast Item) {
        let attributes = match item {
            Item::Fn(item) => &item.attrs,
            Item::Impl(item) => &item.attrs,
            Item::Mod(item) => &item.attrs,
            Item::Struct(item) => &item.attrs,
            Item::Const(item) => &item.attrs,
            _ => return visit::visit_item(self, item),
        };
        if !is_test_only(attributes) {
            visit::visit_item(self, item);
        }
    }

    fn visit_item_mod(&mut self, item: &'ast ItemMod) {
        self.add(DefinitionKind::Module, &item.ident);
        visit::visit_item_mod(self, item);
    }

    fn visit_item_struct(&mut self, item: &'ast ItemStruct) {
        self.add(DefinitionKind::Type, &item.ident);
        visit::visit_item_struct(self, item);
    }

    fn visit_item_enum(&mut self, item: &'ast ItemEnum) {
        self.add(DefinitionKind::Type, &item.ident);
        for variant in &item.variants {
            self.add(DefinitionKind::Variant, &variant.ident);
        }
        visit::visit_item_enum(self, item);
    }

    fn visit_item_trait(&mut self, item: &'ast ItemTrait) {
        self.add(DefinitionKind::Type, &item.ident);
        visit::visit_item_trait(self, item);
    }

    fn visit_item_type(&mut self, item: &'ast ItemType) {
        self.add(DefinitionKind::Type, &item.ident);
    }

    fn visit_field(&mut self, field: &'ast syn::Field) {
        if let Some(name) = &field.ident {
            self.add(DefinitionKind::Field, name);
        }
    }

    fn visit_item_fn(&mut self, item: &'ast ItemFn) {
        self.add(DefinitionKind::Function, &item.sig.ident);
        visit::visit_item_fn(self, item);
    }

    fn visit_impl_item_fn(&mut self, item: &'ast ImplItemFn) {
        if !is_test_only(&item.attrs) {
            self.add(DefinitionKind::Function, &item.sig.ident);
            visit::visit_impl_item_fn(self, item);
        }
    }

    fn visit_trait_item_fn(&mut self, item: &'ast TraitItemFn) {
        self.add(DefinitionKind::Function, &item.sig.ident);
        visit::visit_trait_item_fn(self, item);
    }

    fn visit_item_const(&mut self, item: &'ast ItemConst) {
        self.add_constant(&item.ident, &item.ty, Some(&item.expr));
    }

    fn visit_impl_item_const(&mut self, item: &'ast ImplItemConst) {
        self.add_constant(&item.ident, &item.ty, Some(&item.expr));
    }

    fn visit_trait_item_const(&mut self, item: &'ast TraitItemConst) {
        self.add_constant(&item.ident, &item.ty, None);
    }

    fn visit_item_static(&mut self, item: &'ast ItemStatic) {
        self.add_constant(&item.ident, &item.ty, None);
    }
}
