//! Libraries: code that is loaded once and becomes a module in each context that uses it.

use crate::error::{Code, Result};
use crate::handle::Handle;
use crate::module::Owner;
use crate::ptx::Image;
use crate::world::World;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// A loaded library.
pub struct Library {
    pub image: Arc<Image>,
    pub kernels: BTreeMap<String, Handle>,
    /// Its module in each context that needed one.
    pub modules: HashMap<Handle, Handle>,
}

impl World {
    /// `cuLibraryLoadData`: no context is needed.
    pub fn load_library(&mut self, image: Image) -> Result<Handle> {
        let image = Arc::new(image);
        let library = self.libraries.insert(Library {
            image: image.clone(),
            kernels: BTreeMap::new(),
            modules: HashMap::new(),
        })?;
        let kernels = self.new_functions(&image, Owner::Library(library), 0)?;
        self.libraries.get_mut(library)?.kernels = kernels;
        Ok(library)
    }

    /// `cuLibraryUnload`.
    pub fn unload_library(&mut self, library: Handle) -> Result {
        let held = self.libraries.remove(library)?;
        for kernel in held.kernels.values() {
            self.functions.remove(*kernel)?;
        }
        for module in held.modules.values() {
            self.unload_module(*module)?;
        }
        Ok(())
    }

    /// `cuLibraryGetKernel`.
    pub fn library_kernel(&self, library: Handle, name: &str) -> Result<Handle> {
        let kernel = self.libraries.get(library)?.kernels.get(name).copied().ok_or(Code::NOT_FOUND)?;
        self.with_binary(kernel)
    }

    /// `cuLibraryGetModule`: the library's module in the current context, loaded at first use.
    pub fn library_module(&mut self, library: Handle) -> Result<Handle> {
        let context = self.current()?;
        let held = self.libraries.get(library)?;
        if let Some(&module) = held.modules.get(&context) {
            return Ok(module);
        }
        let image = held.image.clone();
        let module = self.load_module(&image)?;
        self.libraries.get_mut(library)?.modules.insert(context, module);
        Ok(module)
    }

    /// `cuKernelGetLibrary`.
    pub fn library_of(&self, kernel: Handle) -> Result<Handle> {
        match self.functions.get(kernel)?.owner {
            Owner::Library(library) => Ok(library),
            Owner::Module(_) => Err(Code::INVALID_HANDLE),
        }
    }

    /// `cuKernelGetFunction`: the kernel's function in the current context.
    pub fn kernel_function(&mut self, kernel: Handle) -> Result<Handle> {
        let library = self.library_of(kernel)?;
        let held = self.functions.get(kernel)?;
        let (name, shared, carveout) = (held.name, held.max_dynamic_shared, held.carveout);
        let module = self.library_module(library)?;
        let function = self.module_function(module, &name.to_string_lossy())?;
        let held = self.functions.get_mut(function)?;
        held.max_dynamic_shared = shared;
        held.carveout = carveout;
        Ok(function)
    }
}
