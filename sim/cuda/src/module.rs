//! Modules and libraries.

use crate::abi::{In, Out, Text};
use crate::entry::{Call, api};
use gputrace_sim::cubin;
use gputrace_sim::error::{Code, Result};
use gputrace_sim::module::read_image;
use gputrace_sim::ptx::Image;
use gputrace_sim::world::{World, with};
use std::ffi::{CStr, c_char};

/// Reads an image in memory. Binary ones are known by their first bytes; text ends with a zero.
fn image_at(image: In<u8>) -> Result<Image> {
    if image.is_null() {
        return Err(Code::INVALID_VALUE);
    }
    // SAFETY: by the driver's contract an image has at least its four bytes of magic, or is a C string: the
    // bytes are looked at one by one up to the first that ends the string.
    let start = unsafe {
        let mut start = [0u8; 4];
        for (at, byte) in start.iter_mut().enumerate() {
            *byte = image.0.add(at).read();
            if *byte == 0 {
                break;
            }
        }
        start
    };
    match start {
        // SAFETY: by the driver's contract, an image that begins so has a whole header, and the length in it.
        [0x7f, b'E', b'L', b'F'] => read_image(unsafe {
            let header = &*image.0.cast::<[u8; cubin::HEADER_BYTES]>();
            std::slice::from_raw_parts(image.0, cubin::length(header))
        }),
        [0x50, 0xed, 0x55, 0xba] => Err(Code::NO_BINARY_FOR_GPU),
        // The wrapper that nvcc puts around a fatbin.
        [0xb1, 0x43, 0x62, 0x46] => Err(Code::NO_BINARY_FOR_GPU),
        // SAFETY: by the driver's contract an image of any other kind is a C string.
        _ => read_image(unsafe { CStr::from_ptr(image.0.cast::<c_char>()) }.to_bytes()),
    }
}

fn image_in_file(name: Text) -> Result<Image> {
    let bytes = std::fs::read(name.get()?).map_err(|_| Code::FILE_NOT_FOUND)?;
    if bytes.starts_with(b"\x7fELF") {
        return read_image(&bytes);
    }
    let end = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len());
    if bytes.len() >= 4 && end < 4 { Err(Code::INVALID_IMAGE) } else { read_image(&bytes[..end]) }
}

fn load(module: Out<u64>, image: Result<Image>) -> Result {
    module.required()?;
    with(|w| w.current())?;
    let image = image?;
    module.set(with(|w| w.load_module(&image))?)
}

fn load_library(library: Out<u64>, image: Result<Image>) -> Result {
    library.required()?;
    let image = image?;
    library.set(with(|w| w.load_library(image))?)
}

fn variable(dptr: Out<u64>, bytes: Out<u64>, find: impl FnOnce(&mut World) -> Result<(u64, u64)>) -> Result {
    let (address, length) = with(find)?;
    dptr.set_if_wanted(address);
    bytes.set_if_wanted(length);
    Ok(())
}

api! {
    "cuModuleLoad" 2000 fn cuModuleLoad(module: Out<u64>, fname: Text) |_| {
        load(module, image_in_file(fname))
    }
    "cuModuleLoadData" 2000 fn cuModuleLoadData(module: Out<u64>, image: In<u8>) |_| {
        load(module, image_at(image))
    }
    "cuModuleLoadDataEx" 2010 fn cuModuleLoadDataEx(module: Out<u64>, image: In<u8>, _numOptions: u32, _options: u64, _optionValues: u64) |_| {
        load(module, image_at(image))
    }
    "cuModuleLoadFatBinary" 2000 fn cuModuleLoadFatBinary(module: Out<u64>, fatCubin: In<u8>) |_| {
        load(module, image_at(fatCubin))
    }
    "cuModuleUnload" 2000 fn cuModuleUnload(hmod: u64) |_| {
        with(|w| w.unload_module(hmod))
    }
    "cuModuleGetLoadingMode" 11070 fn cuModuleGetLoadingMode(mode: Out<u32>) |_| {
        mode.set(1)
    }
    "cuModuleGetFunction" 2000 fn cuModuleGetFunction(hfunc: Out<u64>, hmod: u64, name: Text) |_| {
        hfunc.required()?;
        let name = name.get()?;
        hfunc.set(with(|w| w.module_function(hmod, name))?)
    }
    "cuModuleGetFunctionCount" 12040 fn cuModuleGetFunctionCount(count: Out<u32>, mod_: u64) |_| {
        count.set(with(|w| Ok(w.modules.get(mod_)?.functions.len()))? as u32)
    }
    "cuModuleEnumerateFunctions" 12040 fn cuModuleEnumerateFunctions(functions: Out<u64>, numFunctions: u32, mod_: u64) |_| {
        let all: Vec<u64> = with(|w| Ok(w.modules.get(mod_)?.functions.values().copied().collect()))?;
        functions.set_list(&all, numFunctions as usize)
    }
    "cuModuleGetGlobal" 3020 fn cuModuleGetGlobal_v2(dptr: Out<u64>, bytes: Out<u64>, hmod: u64, name: Text) |_| {
        let name = name.get()?;
        variable(dptr, bytes, |w| w.module_variable(hmod, name))
    }
    "cuLibraryLoadData" 12000 fn cuLibraryLoadData(
        library: Out<u64>, code: In<u8>, _jitOptions: u64, _jitOptionsValues: u64, _numJitOptions: u32,
        _libraryOptions: u64, _libraryOptionValues: u64, _numLibraryOptions: u32,
    ) |_| {
        load_library(library, image_at(code))
    }
    "cuLibraryLoadFromFile" 12000 fn cuLibraryLoadFromFile(
        library: Out<u64>, fileName: Text, _jitOptions: u64, _jitOptionsValues: u64, _numJitOptions: u32,
        _libraryOptions: u64, _libraryOptionValues: u64, _numLibraryOptions: u32,
    ) |_| {
        load_library(library, image_in_file(fileName))
    }
    "cuLibraryUnload" 12000 fn cuLibraryUnload(library: u64) |_| {
        with(|w| w.unload_library(library))
    }
    "cuLibraryGetKernel" 12000 fn cuLibraryGetKernel(pKernel: Out<u64>, library: u64, name: Text) |_| {
        pKernel.required()?;
        let name = name.get()?;
        pKernel.set(with(|w| w.library_kernel(library, name))?)
    }
    "cuLibraryGetKernelCount" 12040 fn cuLibraryGetKernelCount(count: Out<u32>, lib: u64) |_| {
        count.set(with(|w| Ok(w.libraries.get(lib)?.kernels.len()))? as u32)
    }
    "cuLibraryEnumerateKernels" 12040 fn cuLibraryEnumerateKernels(kernels: Out<u64>, numKernels: u32, lib: u64) |_| {
        let all: Vec<u64> = with(|w| Ok(w.libraries.get(lib)?.kernels.values().copied().collect()))?;
        kernels.set_list(&all, numKernels as usize)
    }
    "cuLibraryGetModule" 12000 fn cuLibraryGetModule(pMod: Out<u64>, library: u64) |_| {
        pMod.required()?;
        pMod.set(with(|w| w.library_module(library))?)
    }
    "cuLibraryGetGlobal" 12000 fn cuLibraryGetGlobal(dptr: Out<u64>, bytes: Out<u64>, library: u64, name: Text) |_| {
        let name = name.get()?;
        variable(dptr, bytes, |w| {
            let module = w.library_module(library)?;
            w.module_variable(module, name)
        })
    }
    "cuLibraryGetManaged" 12000 fn cuLibraryGetManaged(dptr: Out<u64>, bytes: Out<u64>, library: u64, name: Text) |_| {
        let name = name.get()?;
        variable(dptr, bytes, |w| {
            let image = w.libraries.get(library)?.image.clone();
            if !image.variables.iter().any(|known| known.managed && known.name == name) {
                return Err(Code::NOT_FOUND);
            }
            let module = w.library_module(library)?;
            w.module_variable(module, name)
        })
    }
    "cuLibraryGetUnifiedFunction" 12000 fn cuLibraryGetUnifiedFunction(_fptr: Out<u64>, library: u64, _symbol: Text) |_| {
        with(|w| w.libraries.get(library).map(|_| ()))?;
        Err(Code::NOT_FOUND)
    }
    "cuKernelGetLibrary" 12050 fn cuKernelGetLibrary(pLib: Out<u64>, kernel: u64) |_| {
        pLib.set(with(|w| w.library_of(kernel))?)
    }
    "cuKernelGetFunction" 12000 fn cuKernelGetFunction(pFunc: Out<u64>, kernel: u64) |_| {
        pFunc.required()?;
        pFunc.set(with(|w| w.kernel_function(kernel))?)
    }
}
