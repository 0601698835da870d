//! The host's Vulkan functions, looked up through its own vkGetInstanceProcAddr. ash gives the types; its tables are
//! not used, because they put a function that aborts in the place of one that is missing.
use std::ffi::{CStr, c_void};
use std::ptr;

use ash::vk::{self, Handle};

use crate::core::error::{Error, Kind, Result};
use crate::core::slot::VulkanHost;

/// A call's failure: its name and VkResult.
#[derive(Debug, Clone, Copy)]
pub(super) struct Failure {
    call: &'static str,
    result: vk::Result,
}

impl Failure {
    pub(super) fn error(self, tried: impl AsRef<str>) -> Error {
        let kind = match self.result {
            vk::Result::ERROR_OUT_OF_DEVICE_MEMORY
            | vk::Result::ERROR_OUT_OF_HOST_MEMORY
            | vk::Result::ERROR_TOO_MANY_OBJECTS => Kind::OutOfMemory,
            _ => Kind::DriverError,
        };
        let words = match self.result {
            vk::Result::ERROR_OUT_OF_DEVICE_MEMORY => " (out of device memory)",
            vk::Result::ERROR_OUT_OF_HOST_MEMORY => " (out of host memory)",
            vk::Result::ERROR_TOO_MANY_OBJECTS => " (too many objects)",
            vk::Result::ERROR_DEVICE_LOST => " (device lost)",
            vk::Result::ERROR_INVALID_EXTERNAL_HANDLE => " (invalid external handle)",
            _ => "",
        };
        let result = self.result.as_raw();
        Error::new(kind, format!("{}: {} failed with VkResult {result}{words}", tried.as_ref(), self.call))
    }
}

fn check(call: &'static str, result: vk::Result) -> std::result::Result<(), Failure> {
    if result == vk::Result::SUCCESS { Ok(()) } else { Err(Failure { call, result }) }
}

type Outcome<T> = std::result::Result<T, Failure>;

/// The physical device's and the device's functions, and the handles they are for.
pub(super) struct Functions {
    physical_device: vk::PhysicalDevice,
    device: vk::Device,
    enumerate_extensions: vk::PFN_vkEnumerateDeviceExtensionProperties,
    get_memory_properties: vk::PFN_vkGetPhysicalDeviceMemoryProperties,
    get_features2: Option<vk::PFN_vkGetPhysicalDeviceFeatures2>,
    get_properties2: Option<vk::PFN_vkGetPhysicalDeviceProperties2>,
    get_external_buffer_properties: Option<vk::PFN_vkGetPhysicalDeviceExternalBufferProperties>,
    create_buffer: vk::PFN_vkCreateBuffer,
    destroy_buffer: vk::PFN_vkDestroyBuffer,
    get_requirements: vk::PFN_vkGetBufferMemoryRequirements,
    allocate: vk::PFN_vkAllocateMemory,
    free: vk::PFN_vkFreeMemory,
    bind: vk::PFN_vkBindBufferMemory,
    get_remote_address: Option<vk::PFN_vkGetMemoryRemoteAddressNV>,
    get_device_address: Option<vk::PFN_vkGetBufferDeviceAddress>,
}

/// A function pointer of any Vulkan type.
///
/// # Safety
/// `F` is the function pointer type of what `found` is.
unsafe fn typed<F: Copy>(found: vk::PFN_vkVoidFunction) -> Option<F> {
    const { assert!(size_of::<F>() == size_of::<unsafe extern "system" fn()>()) };
    let function = found?;
    // SAFETY: all function pointers are of one size, and the caller vouches for the type.
    Some(unsafe { std::mem::transmute_copy::<unsafe extern "system" fn(), F>(&function) })
}

fn missing(name: &CStr) -> Error {
    let text =
        format!("vk_get_instance_proc_addr knows no {}; is it of these handles?", name.to_string_lossy());
    Error::new(Kind::NotSupported, text)
}

impl Functions {
    /// Looks up everything; the handles are the host's word.
    pub(super) fn load(host: &VulkanHost) -> Result<Self> {
        for (handle, name) in [
            (host.instance, "vk_instance"),
            (host.physical_device, "vk_physical_device"),
            (host.device, "vk_device"),
            (host.get_instance_proc_addr, "vk_get_instance_proc_addr"),
        ] {
            if handle == 0 {
                return Err(Error::invalid(format!("NRDMA_GPU_VULKAN needs {name}, which is NULL")));
            }
        }
        let instance = vk::Instance::from_raw(host.instance as u64);
        let device = vk::Device::from_raw(host.device as u64);
        let address = ptr::with_exposed_provenance::<c_void>(host.get_instance_proc_addr);
        // SAFETY: not null; by the contract of nrdma_gpu_buffer_config it is vkGetInstanceProcAddr.
        let lookup = unsafe { std::mem::transmute::<*const c_void, vk::PFN_vkGetInstanceProcAddr>(address) };
        // SAFETY: the host's own instance and a C string.
        let of_instance = |name: &CStr| unsafe { lookup(instance, name.as_ptr()) };
        const DEVICE_LOOKUP: &CStr = c"vkGetDeviceProcAddr";
        // SAFETY: that is the function's type.
        let device_lookup = unsafe { typed::<vk::PFN_vkGetDeviceProcAddr>(of_instance(DEVICE_LOOKUP)) }
            .ok_or_else(|| missing(DEVICE_LOOKUP))?;
        // SAFETY: the host's own device and a C string.
        let of_device = |name: &CStr| unsafe { device_lookup(device, name.as_ptr()) };
        macro_rules! required {
            ($lookup:ident, $name:literal) => {
                // SAFETY: the field's type is the function's.
                unsafe { typed($lookup($name)) }.ok_or_else(|| missing($name))?
            };
        }
        macro_rules! optional {
            ($lookup:ident, $name:literal, $older:literal) => {
                // SAFETY: the field's type is the function's.
                unsafe { typed($lookup($name).or_else(|| $lookup($older))) }
            };
        }
        Ok(Self {
            physical_device: vk::PhysicalDevice::from_raw(host.physical_device as u64),
            device,
            enumerate_extensions: required!(of_instance, c"vkEnumerateDeviceExtensionProperties"),
            get_memory_properties: required!(of_instance, c"vkGetPhysicalDeviceMemoryProperties"),
            get_features2: optional!(
                of_instance,
                c"vkGetPhysicalDeviceFeatures2",
                c"vkGetPhysicalDeviceFeatures2KHR"
            ),
            get_properties2: optional!(
                of_instance,
                c"vkGetPhysicalDeviceProperties2",
                c"vkGetPhysicalDeviceProperties2KHR"
            ),
            get_external_buffer_properties: optional!(
                of_instance,
                c"vkGetPhysicalDeviceExternalBufferProperties",
                c"vkGetPhysicalDeviceExternalBufferPropertiesKHR"
            ),
            create_buffer: required!(of_device, c"vkCreateBuffer"),
            destroy_buffer: required!(of_device, c"vkDestroyBuffer"),
            get_requirements: required!(of_device, c"vkGetBufferMemoryRequirements"),
            allocate: required!(of_device, c"vkAllocateMemory"),
            free: required!(of_device, c"vkFreeMemory"),
            bind: required!(of_device, c"vkBindBufferMemory"),
            // Only the device's lookup tells whether the extension is enabled on *this* device.
            get_remote_address: optional!(
                of_device,
                c"vkGetMemoryRemoteAddressNV",
                c"vkGetMemoryRemoteAddressNV"
            ),
            get_device_address: optional!(
                of_device,
                c"vkGetBufferDeviceAddress",
                c"vkGetBufferDeviceAddressKHR"
            ),
        })
    }

    /// Whether VK_NV_external_memory_rdma is enabled on the host's device.
    pub(super) fn is_enabled(&self) -> bool {
        self.get_remote_address.is_some()
    }

    /// Whether the instance is of Vulkan 1.1 or later, as the extension needs.
    pub(super) fn has_1_1(&self) -> bool {
        self.get_features2.is_some() && self.get_external_buffer_properties.is_some()
    }

    /// Whether the physical device has an extension.
    pub(super) fn has_extension(&self, name: &CStr) -> Outcome<bool> {
        const CALL: &str = "vkEnumerateDeviceExtensionProperties";
        let mut count = 0;
        // SAFETY: only the count is asked for.
        let result = unsafe {
            (self.enumerate_extensions)(self.physical_device, ptr::null(), &raw mut count, ptr::null_mut())
        };
        check(CALL, result)?;
        let mut all = vec![vk::ExtensionProperties::default(); usize::try_from(count).unwrap_or(0)];
        // SAFETY: there is room for as many as said.
        let result = unsafe {
            (self.enumerate_extensions)(self.physical_device, ptr::null(), &raw mut count, all.as_mut_ptr())
        };
        if result != vk::Result::INCOMPLETE {
            check(CALL, result)?;
        }
        Ok(all.iter().any(|extension| extension.extension_name_as_c_str() == Ok(name)))
    }

    /// Whether the physical device has the feature externalMemoryRDMA. A guest cannot see whether it is on.
    pub(super) fn has_feature(&self) -> bool {
        let Some(get) = self.get_features2 else { return false };
        let mut rdma = vk::PhysicalDeviceExternalMemoryRDMAFeaturesNV::default();
        let mut all = vk::PhysicalDeviceFeatures2::default().push_next(&mut rdma);
        // SAFETY: a chain of two structs that live long enough.
        unsafe { get(self.physical_device, &raw mut all) };
        rdma.external_memory_rdma != 0
    }

    /// The physical device's UUID, which is also CUDA's; zero when the instance is too old.
    pub(super) fn uuid(&self) -> [u8; 16] {
        let Some(get) = self.get_properties2 else { return [0; 16] };
        let mut id = vk::PhysicalDeviceIDProperties::default();
        let mut all = vk::PhysicalDeviceProperties2::default().push_next(&mut id);
        // SAFETY: a chain of two structs that live long enough.
        unsafe { get(self.physical_device, &raw mut all) };
        id.device_uuid
    }

    /// Whether the address of a buffer with this use can be had.
    pub(super) fn is_exportable(&self, usage: vk::BufferUsageFlags) -> bool {
        let Some(get) = self.get_external_buffer_properties else { return false };
        let asked = vk::PhysicalDeviceExternalBufferInfo::default()
            .usage(usage)
            .handle_type(vk::ExternalMemoryHandleTypeFlags::RDMA_ADDRESS_NV);
        let mut said = vk::ExternalBufferProperties::default();
        // SAFETY: one struct is read, one written.
        unsafe { get(self.physical_device, &raw const asked, &raw mut said) };
        let features = said.external_memory_properties.external_memory_features;
        features.contains(vk::ExternalMemoryFeatureFlags::EXPORTABLE)
    }

    /// The types and heaps of the device's memory.
    pub(super) fn memory_properties(&self) -> vk::PhysicalDeviceMemoryProperties {
        let mut properties = vk::PhysicalDeviceMemoryProperties::default();
        // SAFETY: one struct is written.
        unsafe { (self.get_memory_properties)(self.physical_device, &raw mut properties) };
        properties
    }

    pub(super) fn create_buffer(
        &self,
        size: u64,
        usage: vk::BufferUsageFlags,
        families: &[u32],
    ) -> Outcome<vk::Buffer> {
        let mut external = vk::ExternalMemoryBufferCreateInfo::default()
            .handle_types(vk::ExternalMemoryHandleTypeFlags::RDMA_ADDRESS_NV);
        let mut create = vk::BufferCreateInfo::default().size(size).usage(usage).push_next(&mut external);
        if families.len() > 1 {
            create = create.sharing_mode(vk::SharingMode::CONCURRENT).queue_family_indices(families);
        }
        let mut buffer = vk::Buffer::null();
        // SAFETY: a chain of structs that live long enough, and room for a handle.
        let result =
            unsafe { (self.create_buffer)(self.device, &raw const create, ptr::null(), &raw mut buffer) };
        check("vkCreateBuffer", result)?;
        Ok(buffer)
    }

    /// Nothing uses the buffer any more; null is fine.
    pub(super) fn destroy_buffer(&self, buffer: vk::Buffer) {
        // SAFETY: ours, and the host lets go of it before, by nrdma_gpu_buffer_destroy's contract.
        unsafe { (self.destroy_buffer)(self.device, buffer, ptr::null()) };
    }

    pub(super) fn requirements(&self, buffer: vk::Buffer) -> vk::MemoryRequirements {
        let mut requirements = vk::MemoryRequirements::default();
        // SAFETY: a buffer of ours; one struct is written.
        unsafe { (self.get_requirements)(self.device, buffer, &raw mut requirements) };
        requirements
    }

    pub(super) fn allocate(
        &self,
        size: u64,
        memory_type: u32,
        addressable: bool,
    ) -> Outcome<vk::DeviceMemory> {
        let mut export = vk::ExportMemoryAllocateInfo::default()
            .handle_types(vk::ExternalMemoryHandleTypeFlags::RDMA_ADDRESS_NV);
        let mut flags = vk::MemoryAllocateFlagsInfo::default().flags(vk::MemoryAllocateFlags::DEVICE_ADDRESS);
        let mut info = vk::MemoryAllocateInfo::default()
            .allocation_size(size)
            .memory_type_index(memory_type)
            .push_next(&mut export);
        if addressable {
            info = info.push_next(&mut flags);
        }
        let mut memory = vk::DeviceMemory::null();
        // SAFETY: a chain of structs that live long enough, and room for a handle.
        let result = unsafe { (self.allocate)(self.device, &raw const info, ptr::null(), &raw mut memory) };
        check("vkAllocateMemory", result)?;
        Ok(memory)
    }

    /// Nothing uses the memory any more; null is fine.
    pub(super) fn free(&self, memory: vk::DeviceMemory) {
        // SAFETY: ours, and its buffer is gone.
        unsafe { (self.free)(self.device, memory, ptr::null()) };
    }

    pub(super) fn bind(&self, buffer: vk::Buffer, memory: vk::DeviceMemory) -> Outcome<()> {
        // SAFETY: both ours, and bound once.
        check("vkBindBufferMemory", unsafe { (self.bind)(self.device, buffer, memory, 0) })
    }

    /// The address at which other PCIe devices reach the memory.
    pub(super) fn remote_address(&self, memory: vk::DeviceMemory) -> Outcome<u64> {
        const CALL: &str = "vkGetMemoryRemoteAddressNV";
        let get = self
            .get_remote_address
            .ok_or(Failure { call: CALL, result: vk::Result::ERROR_EXTENSION_NOT_PRESENT })?;
        let asked = vk::MemoryGetRemoteAddressInfoNV::default()
            .memory(memory)
            .handle_type(vk::ExternalMemoryHandleTypeFlags::RDMA_ADDRESS_NV);
        let mut address: *mut c_void = ptr::null_mut();
        // ash declares the out parameter as void*, where C has void**. SAFETY: there is room for a pointer.
        let result = unsafe { get(self.device, &raw const asked, (&raw mut address).cast()) };
        check(CALL, result)?;
        Ok(address.expose_provenance() as u64)
    }

    /// The address for shaders; 0 when the device has none.
    pub(super) fn device_address(&self, buffer: vk::Buffer) -> u64 {
        let Some(get) = self.get_device_address else { return 0 };
        let asked = vk::BufferDeviceAddressInfo::default().buffer(buffer);
        // SAFETY: one struct is read; the buffer was made for this.
        unsafe { get(self.device, &raw const asked) }
    }
}
