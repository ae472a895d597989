//! The linker, which takes PTX text only.

use crate::abi::{In, Out, Text};
use crate::entry::{Call, api};
use gputrace_sim::error::{Code, Result};
use gputrace_sim::link::Link;
use gputrace_sim::world::with;

fn create(state: Out<u64>) -> Result {
    state.required()?;
    state.set(with(|w| {
        w.current()?;
        w.links.insert(Link::default())
    })?)
}

fn add_data(state: u64, kind: u32, data: In<u8>, bytes: u64) -> Result {
    let data = data.list(bytes as usize)?;
    with(|w| w.add_to_link(state, kind, &data))
}

fn add_file(state: u64, kind: u32, path: Text) -> Result {
    let data = std::fs::read(path.get()?).map_err(|_| Code::FILE_NOT_FOUND)?;
    with(|w| w.add_to_link(state, kind, &data))
}

api! {
    "cuLinkCreate" 5050 fn cuLinkCreate(_numOptions: u32, _options: u64, _optionValues: u64, stateOut: Out<u64>) |_| {
        create(stateOut)
    }
    "cuLinkCreate" 6050 fn cuLinkCreate_v2(_numOptions: u32, _options: u64, _optionValues: u64, stateOut: Out<u64>) |_| {
        create(stateOut)
    }
    "cuLinkAddData" 5050 fn cuLinkAddData(state: u64, kind: u32, data: In<u8>, size: u64, _name: u64, _numOptions: u32, _options: u64, _optionValues: u64) |_| {
        add_data(state, kind, data, size)
    }
    "cuLinkAddData" 6050 fn cuLinkAddData_v2(state: u64, kind: u32, data: In<u8>, size: u64, _name: u64, _numOptions: u32, _options: u64, _optionValues: u64) |_| {
        add_data(state, kind, data, size)
    }
    "cuLinkAddFile" 5050 fn cuLinkAddFile(state: u64, kind: u32, path: Text, _numOptions: u32, _options: u64, _optionValues: u64) |_| {
        add_file(state, kind, path)
    }
    "cuLinkAddFile" 6050 fn cuLinkAddFile_v2(state: u64, kind: u32, path: Text, _numOptions: u32, _options: u64, _optionValues: u64) |_| {
        add_file(state, kind, path)
    }
    "cuLinkComplete" 5050 fn cuLinkComplete(state: u64, cubinOut: Out<u64>, sizeOut: Out<u64>) |_| {
        let (image, bytes) = with(|w| w.complete_link(state))?;
        cubinOut.set(image)?;
        sizeOut.set_if_wanted(bytes);
        Ok(())
    }
    "cuLinkDestroy" 5050 fn cuLinkDestroy(state: u64) |_| {
        with(|w| w.links.remove(state).map(|_| ()))
    }
}
