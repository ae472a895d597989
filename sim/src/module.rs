//! Modules, the functions in them, and their variables.

use crate::cubin;
use crate::device;
use crate::error::{Code, Result};
use crate::handle::Handle;
use crate::memory::Kind;
use crate::ptx::{self, Entry, Image};
use crate::world::World;
use std::collections::{BTreeMap, HashMap};
use std::ffi::CStr;
use std::sync::Arc;

/// Where a function comes from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Owner {
    Module(Handle),
    /// A context-independent kernel (`CUkernel`).
    Library(Handle),
}

/// A `CUfunction` or a `CUkernel`.
#[derive(Clone)]
pub struct Function {
    pub owner: Owner,
    /// 0 for a kernel, which has none.
    pub context: Handle,
    pub name: &'static CStr,
    pub entry: Arc<Entry>,
    pub version: u32,
    pub target: u32,
    /// Most dynamic shared memory that a launch may ask for.
    pub max_dynamic_shared: u32,
    pub carveout: i32,
    pub cluster: [u32; 3],
    pub non_portable_cluster: bool,
    pub cluster_policy: i32,
}

/// A loaded module.
pub struct Module {
    pub context: Handle,
    pub functions: BTreeMap<String, Handle>,
    /// Address and size of each variable.
    pub variables: HashMap<String, (u64, u64)>,
}

/// Reads an image in any form that a program may hand over.
pub fn read_image(bytes: &[u8]) -> Result<Image> {
    match bytes {
        [0x7f, b'E', b'L', b'F', ..] => cubin::read(bytes),
        [0x50, 0xed, 0x55, 0xba, ..] => Err(Code::NO_BINARY_FOR_GPU),
        _ => {
            let text = std::str::from_utf8(bytes).map_err(|_| Code::INVALID_IMAGE)?;
            if text.contains(".version") { ptx::read(text) } else { Err(Code::INVALID_IMAGE) }
        }
    }
}

impl World {
    /// Functions of an image, as handles of `owner`.
    pub fn new_functions(
        &mut self,
        image: &Image,
        owner: Owner,
        context: Handle,
    ) -> Result<BTreeMap<String, Handle>> {
        let mut functions = BTreeMap::new();
        for entry in &image.entries {
            let name = self.intern(&entry.name);
            let free = device::SHARED_BYTES_PER_BLOCK.saturating_sub(entry.shared_bytes);
            let function = self.functions.insert(Function {
                owner,
                context,
                name,
                entry: Arc::new(entry.clone()),
                version: image.version,
                target: image.target,
                max_dynamic_shared: free,
                carveout: -1,
                cluster: entry.required_cluster.unwrap_or([0; 3]),
                non_portable_cluster: false,
                cluster_policy: 0,
            })?;
            functions.insert(entry.name.clone(), function);
        }
        Ok(functions)
    }

    /// Loads an image into the current context.
    pub fn load_module(&mut self, image: &Image) -> Result<Handle> {
        let context = self.current()?;
        let device = self.contexts.get(context)?.device;
        let module =
            self.modules.insert(Module { context, functions: BTreeMap::new(), variables: HashMap::new() })?;
        let functions = self.new_functions(image, Owner::Module(module), context)?;
        let mut variables = HashMap::new();
        for variable in &image.variables {
            let bytes = (variable.bytes.len() as u64).max(1);
            let base = self.memory.allocate(bytes, Kind::Variable(module), device, context, 0)?;
            // SAFETY: `base` was mapped just now with at least this many bytes.
            unsafe {
                std::ptr::copy_nonoverlapping(variable.bytes.as_ptr(), base as *mut u8, variable.bytes.len())
            };
            variables.insert(variable.name.clone(), (base, variable.bytes.len() as u64));
        }
        let held = self.modules.get_mut(module)?;
        held.functions = functions;
        held.variables = variables;
        Ok(module)
    }

    /// Unloads a module and everything of it.
    pub fn unload_module(&mut self, module: Handle) -> Result {
        let held = self.modules.remove(module)?;
        for function in held.functions.values() {
            self.functions.remove(*function)?;
        }
        for (base, _) in held.variables.values() {
            self.free_in_stream(*base);
        }
        Ok(())
    }

    /// `cuModuleGetFunction`.
    pub fn module_function(&self, module: Handle, name: &str) -> Result<Handle> {
        let function = self.modules.get(module)?.functions.get(name).copied().ok_or(Code::NOT_FOUND)?;
        self.with_binary(function)
    }

    /// That function, if there is code of it for the device.
    pub fn with_binary(&self, function: Handle) -> Result<Handle> {
        if self.functions.get(function)?.entry.no_binary {
            return Err(Code::NO_BINARY_FOR_GPU);
        }
        Ok(function)
    }

    /// `cuModuleGetGlobal`.
    pub fn module_variable(&self, module: Handle, name: &str) -> Result<(u64, u64)> {
        self.modules.get(module)?.variables.get(name).copied().ok_or(Code::NOT_FOUND)
    }
}

impl Function {
    /// A function attribute by the driver's number.
    pub fn attribute(&self, number: u32) -> Result<i32> {
        Ok(match number {
            0 => self.max_threads() as i32,
            1 => self.entry.shared_bytes as i32,
            2 => 0,
            3 => self.entry.local_bytes as i32,
            4 => self.entry.registers as i32,
            5 => self.version as i32,
            6 => 90,
            7 => 0,
            8 => self.max_dynamic_shared as i32,
            9 => self.carveout,
            10 => i32::from(self.entry.required_cluster.is_some()),
            11..=13 => self.cluster[number as usize - 11] as i32,
            14 => i32::from(self.non_portable_cluster),
            15 => self.cluster_policy,
            _ => return Err(Code::INVALID_VALUE),
        })
    }

    /// Most threads that a block of this function may have.
    pub fn max_threads(&self) -> u32 {
        let by_registers =
            device::REGISTERS_PER_MULTIPROCESSOR / self.entry.registers.max(1).next_multiple_of(8);
        let by_registers = by_registers / device::WARP_SIZE * device::WARP_SIZE;
        self.entry
            .max_threads
            .unwrap_or(device::MAX_THREADS_PER_BLOCK)
            .min(device::MAX_THREADS_PER_BLOCK)
            .min(by_registers)
    }

    /// Sets one of the attributes that can be set.
    pub fn set_attribute(&mut self, number: u32, value: i32) -> Result {
        let unsigned = u32::try_from(value);
        match number {
            8 => {
                let most = device::SHARED_BYTES_PER_BLOCK_OPT_IN.saturating_sub(self.entry.shared_bytes);
                self.max_dynamic_shared = unsigned.ok().filter(|&v| v <= most).ok_or(Code::INVALID_VALUE)?;
            }
            9 if (-1..=100).contains(&value) => self.carveout = value,
            11..=13 if self.entry.required_cluster.is_none() => {
                self.cluster[number as usize - 11] = unsigned.map_err(|_| Code::INVALID_VALUE)?
            }
            14 => self.non_portable_cluster = value != 0,
            15 if (0..=2).contains(&value) => self.cluster_policy = value,
            _ => return Err(Code::INVALID_VALUE),
        }
        Ok(())
    }
}
