//! What Microsoft's compiler finds in front of a table: the class's name and bases, for dynamic_cast and typeid.
//!
//! A type is known by its decorated name, so that no module of the host's is needed. Places are relative to the
//! module (`.rva`). For each type: its descriptor (td: two words for the runtime, the name), how it appears among
//! bases (bcd: bases below it, displacement 0, -1, 0, attributes), its hierarchy (chd, bca: itself and its bases) and
//! its complete object locator (col: signature 1, offsets 0).
use std::arch::global_asm;

// mi::base::IInterface
#[rustfmt::skip]
global_asm!(
    ".section .data,\"dw\"",
    ".p2align 3",
    "nrdma_td_interface: .quad 0, 0",
    ".asciz \".?AVIInterface@base@mi@@\"",
    ".section .rdata,\"dr\"",
    ".p2align 2",
    "nrdma_bcd_interface: .rva nrdma_td_interface",
    ".long 0, 0, -1, 0, 64",
    ".rva nrdma_chd_interface",
    "nrdma_chd_interface: .long 0, 0, 1",
    ".rva nrdma_bca_interface",
    "nrdma_bca_interface: .rva nrdma_bcd_interface",
    ".long 0",
    ".p2align 3",
    ".globl nrdma_col_interface",
    "nrdma_col_interface: .long 1, 0, 0",
    ".rva nrdma_td_interface",
    ".rva nrdma_chd_interface",
    ".rva nrdma_col_interface",
    ".text",
);
// Interface_declare with the id of IRDMA_buffer
#[rustfmt::skip]
global_asm!(
    ".section .data,\"dw\"",
    ".p2align 3",
    "nrdma_td_buffer_declare: .quad 0, 0",
    ".asciz \".?AV?$Interface_declare@$0JLHLAAOG@$0JFDJ@$0EKAH@$0II@$0BK@$0JN@$0NN@$0JB@$0FM@$0GN@$0PO@VIInterface@base@mi@@@base@mi@@\"",
    ".section .rdata,\"dr\"",
    ".p2align 2",
    "nrdma_bcd_buffer_declare: .rva nrdma_td_buffer_declare",
    ".long 1, 0, -1, 0, 64",
    ".rva nrdma_chd_buffer_declare",
    "nrdma_chd_buffer_declare: .long 0, 0, 2",
    ".rva nrdma_bca_buffer_declare",
    "nrdma_bca_buffer_declare: .rva nrdma_bcd_buffer_declare",
    ".rva nrdma_bcd_interface",
    ".long 0",
    ".p2align 3",
    ".globl nrdma_col_buffer_declare",
    "nrdma_col_buffer_declare: .long 1, 0, 0",
    ".rva nrdma_td_buffer_declare",
    ".rva nrdma_chd_buffer_declare",
    ".rva nrdma_col_buffer_declare",
    ".text",
);
// mi::neuraylib::IRDMA_buffer
#[rustfmt::skip]
global_asm!(
    ".section .data,\"dw\"",
    ".p2align 3",
    "nrdma_td_buffer: .quad 0, 0",
    ".asciz \".?AVIRDMA_buffer@neuraylib@mi@@\"",
    ".section .rdata,\"dr\"",
    ".p2align 2",
    "nrdma_bcd_buffer: .rva nrdma_td_buffer",
    ".long 2, 0, -1, 0, 64",
    ".rva nrdma_chd_buffer",
    "nrdma_chd_buffer: .long 0, 0, 3",
    ".rva nrdma_bca_buffer",
    "nrdma_bca_buffer: .rva nrdma_bcd_buffer",
    ".rva nrdma_bcd_buffer_declare",
    ".rva nrdma_bcd_interface",
    ".long 0",
    ".p2align 3",
    ".globl nrdma_col_buffer",
    "nrdma_col_buffer: .long 1, 0, 0",
    ".rva nrdma_td_buffer",
    ".rva nrdma_chd_buffer",
    ".rva nrdma_col_buffer",
    ".text",
);
// Interface_declare with the id of IRDMA_context
#[rustfmt::skip]
global_asm!(
    ".section .data,\"dw\"",
    ".p2align 3",
    "nrdma_td_context_declare: .quad 0, 0",
    ".asciz \".?AV?$Interface_declare@$0FPDJIAOJ@$0PKNM@$0EHIN@$0LL@$0BI@$0EE@$0BA@$0KE@$0GP@$0PH@$0LF@VIInterface@base@mi@@@base@mi@@\"",
    ".section .rdata,\"dr\"",
    ".p2align 2",
    "nrdma_bcd_context_declare: .rva nrdma_td_context_declare",
    ".long 1, 0, -1, 0, 64",
    ".rva nrdma_chd_context_declare",
    "nrdma_chd_context_declare: .long 0, 0, 2",
    ".rva nrdma_bca_context_declare",
    "nrdma_bca_context_declare: .rva nrdma_bcd_context_declare",
    ".rva nrdma_bcd_interface",
    ".long 0",
    ".p2align 3",
    ".globl nrdma_col_context_declare",
    "nrdma_col_context_declare: .long 1, 0, 0",
    ".rva nrdma_td_context_declare",
    ".rva nrdma_chd_context_declare",
    ".rva nrdma_col_context_declare",
    ".text",
);
// mi::neuraylib::IRDMA_context
#[rustfmt::skip]
global_asm!(
    ".section .data,\"dw\"",
    ".p2align 3",
    "nrdma_td_context: .quad 0, 0",
    ".asciz \".?AVIRDMA_context@neuraylib@mi@@\"",
    ".section .rdata,\"dr\"",
    ".p2align 2",
    "nrdma_bcd_context: .rva nrdma_td_context",
    ".long 2, 0, -1, 0, 64",
    ".rva nrdma_chd_context",
    "nrdma_chd_context: .long 0, 0, 3",
    ".rva nrdma_bca_context",
    "nrdma_bca_context: .rva nrdma_bcd_context",
    ".rva nrdma_bcd_context_declare",
    ".rva nrdma_bcd_interface",
    ".long 0",
    ".p2align 3",
    ".globl nrdma_col_context",
    "nrdma_col_context: .long 1, 0, 0",
    ".rva nrdma_td_context",
    ".rva nrdma_chd_context",
    ".rva nrdma_col_context",
    ".text",
);
// Interface_declare with the id of IScheduler
#[rustfmt::skip]
global_asm!(
    ".section .data,\"dw\"",
    ".p2align 3",
    "nrdma_td_scheduler_declare: .quad 0, 0",
    ".asciz \".?AV?$Interface_declare@$0NAHFEABI@$0MKIP@$0EIOA@$0IK@$0DH@$0OL@$0ID@$0DB@$0LH@$0IF@$0CA@VIInterface@base@mi@@@base@mi@@\"",
    ".section .rdata,\"dr\"",
    ".p2align 2",
    "nrdma_bcd_scheduler_declare: .rva nrdma_td_scheduler_declare",
    ".long 1, 0, -1, 0, 64",
    ".rva nrdma_chd_scheduler_declare",
    "nrdma_chd_scheduler_declare: .long 0, 0, 2",
    ".rva nrdma_bca_scheduler_declare",
    "nrdma_bca_scheduler_declare: .rva nrdma_bcd_scheduler_declare",
    ".rva nrdma_bcd_interface",
    ".long 0",
    ".p2align 3",
    ".globl nrdma_col_scheduler_declare",
    "nrdma_col_scheduler_declare: .long 1, 0, 0",
    ".rva nrdma_td_scheduler_declare",
    ".rva nrdma_chd_scheduler_declare",
    ".rva nrdma_col_scheduler_declare",
    ".text",
);
// mi::neuraylib::IScheduler
#[rustfmt::skip]
global_asm!(
    ".section .data,\"dw\"",
    ".p2align 3",
    "nrdma_td_scheduler: .quad 0, 0",
    ".asciz \".?AVIScheduler@neuraylib@mi@@\"",
    ".section .rdata,\"dr\"",
    ".p2align 2",
    "nrdma_bcd_scheduler: .rva nrdma_td_scheduler",
    ".long 2, 0, -1, 0, 64",
    ".rva nrdma_chd_scheduler",
    "nrdma_chd_scheduler: .long 0, 0, 3",
    ".rva nrdma_bca_scheduler",
    "nrdma_bca_scheduler: .rva nrdma_bcd_scheduler",
    ".rva nrdma_bcd_scheduler_declare",
    ".rva nrdma_bcd_interface",
    ".long 0",
    ".p2align 3",
    ".globl nrdma_col_scheduler",
    "nrdma_col_scheduler: .long 1, 0, 0",
    ".rva nrdma_td_scheduler",
    ".rva nrdma_chd_scheduler",
    ".rva nrdma_col_scheduler",
    ".text",
);
// Interface_declare with the id of IDice_configuration
#[rustfmt::skip]
global_asm!(
    ".section .data,\"dw\"",
    ".p2align 3",
    "nrdma_td_dice_configuration_declare: .quad 0, 0",
    ".asciz \".?AV?$Interface_declare@$0PMMLPHLI@$0DANB@$0EPLP@$0LN@$0MG@$0DL@$0JG@$0OB@$0PL@$0EA@$0GK@VIInterface@base@mi@@@base@mi@@\"",
    ".section .rdata,\"dr\"",
    ".p2align 2",
    "nrdma_bcd_dice_configuration_declare: .rva nrdma_td_dice_configuration_declare",
    ".long 1, 0, -1, 0, 64",
    ".rva nrdma_chd_dice_configuration_declare",
    "nrdma_chd_dice_configuration_declare: .long 0, 0, 2",
    ".rva nrdma_bca_dice_configuration_declare",
    "nrdma_bca_dice_configuration_declare: .rva nrdma_bcd_dice_configuration_declare",
    ".rva nrdma_bcd_interface",
    ".long 0",
    ".p2align 3",
    ".globl nrdma_col_dice_configuration_declare",
    "nrdma_col_dice_configuration_declare: .long 1, 0, 0",
    ".rva nrdma_td_dice_configuration_declare",
    ".rva nrdma_chd_dice_configuration_declare",
    ".rva nrdma_col_dice_configuration_declare",
    ".text",
);
// mi::neuraylib::IDice_configuration
#[rustfmt::skip]
global_asm!(
    ".section .data,\"dw\"",
    ".p2align 3",
    "nrdma_td_dice_configuration: .quad 0, 0",
    ".asciz \".?AVIDice_configuration@neuraylib@mi@@\"",
    ".section .rdata,\"dr\"",
    ".p2align 2",
    "nrdma_bcd_dice_configuration: .rva nrdma_td_dice_configuration",
    ".long 2, 0, -1, 0, 64",
    ".rva nrdma_chd_dice_configuration",
    "nrdma_chd_dice_configuration: .long 0, 0, 3",
    ".rva nrdma_bca_dice_configuration",
    "nrdma_bca_dice_configuration: .rva nrdma_bcd_dice_configuration",
    ".rva nrdma_bcd_dice_configuration_declare",
    ".rva nrdma_bcd_interface",
    ".long 0",
    ".p2align 3",
    ".globl nrdma_col_dice_configuration",
    "nrdma_col_dice_configuration: .long 1, 0, 0",
    ".rva nrdma_td_dice_configuration",
    ".rva nrdma_chd_dice_configuration",
    ".rva nrdma_col_dice_configuration",
    ".text",
);
// Interface_declare with the id of ISerializer
#[rustfmt::skip]
global_asm!(
    ".section .data,\"dw\"",
    ".p2align 3",
    "nrdma_td_serializer_declare: .quad 0, 0",
    ".asciz \".?AV?$Interface_declare@$0NMPFKGFJ@$0CLAG@$0EDGL@$0IC@$0FF@$0DG@$0JN@$0LN@$0OH@$0EC@$0LB@VIInterface@base@mi@@@base@mi@@\"",
    ".section .rdata,\"dr\"",
    ".p2align 2",
    "nrdma_bcd_serializer_declare: .rva nrdma_td_serializer_declare",
    ".long 1, 0, -1, 0, 64",
    ".rva nrdma_chd_serializer_declare",
    "nrdma_chd_serializer_declare: .long 0, 0, 2",
    ".rva nrdma_bca_serializer_declare",
    "nrdma_bca_serializer_declare: .rva nrdma_bcd_serializer_declare",
    ".rva nrdma_bcd_interface",
    ".long 0",
    ".p2align 3",
    ".globl nrdma_col_serializer_declare",
    "nrdma_col_serializer_declare: .long 1, 0, 0",
    ".rva nrdma_td_serializer_declare",
    ".rva nrdma_chd_serializer_declare",
    ".rva nrdma_col_serializer_declare",
    ".text",
);
// mi::neuraylib::ISerializer
#[rustfmt::skip]
global_asm!(
    ".section .data,\"dw\"",
    ".p2align 3",
    "nrdma_td_serializer: .quad 0, 0",
    ".asciz \".?AVISerializer@neuraylib@mi@@\"",
    ".section .rdata,\"dr\"",
    ".p2align 2",
    "nrdma_bcd_serializer: .rva nrdma_td_serializer",
    ".long 2, 0, -1, 0, 64",
    ".rva nrdma_chd_serializer",
    "nrdma_chd_serializer: .long 0, 0, 3",
    ".rva nrdma_bca_serializer",
    "nrdma_bca_serializer: .rva nrdma_bcd_serializer",
    ".rva nrdma_bcd_serializer_declare",
    ".rva nrdma_bcd_interface",
    ".long 0",
    ".p2align 3",
    ".globl nrdma_col_serializer",
    "nrdma_col_serializer: .long 1, 0, 0",
    ".rva nrdma_td_serializer",
    ".rva nrdma_chd_serializer",
    ".rva nrdma_col_serializer",
    ".text",
);
// Interface_declare with the id of IDeserializer
#[rustfmt::skip]
global_asm!(
    ".section .data,\"dw\"",
    ".p2align 3",
    "nrdma_td_deserializer_declare: .quad 0, 0",
    ".asciz \".?AV?$Interface_declare@$0HAFCCFIK@$0FHJL@$0EIGB@$0JM@$0BC@$0FP@$01$0JM@$0IG@$0PL@$0MO@VIInterface@base@mi@@@base@mi@@\"",
    ".section .rdata,\"dr\"",
    ".p2align 2",
    "nrdma_bcd_deserializer_declare: .rva nrdma_td_deserializer_declare",
    ".long 1, 0, -1, 0, 64",
    ".rva nrdma_chd_deserializer_declare",
    "nrdma_chd_deserializer_declare: .long 0, 0, 2",
    ".rva nrdma_bca_deserializer_declare",
    "nrdma_bca_deserializer_declare: .rva nrdma_bcd_deserializer_declare",
    ".rva nrdma_bcd_interface",
    ".long 0",
    ".p2align 3",
    ".globl nrdma_col_deserializer_declare",
    "nrdma_col_deserializer_declare: .long 1, 0, 0",
    ".rva nrdma_td_deserializer_declare",
    ".rva nrdma_chd_deserializer_declare",
    ".rva nrdma_col_deserializer_declare",
    ".text",
);
// mi::neuraylib::IDeserializer
#[rustfmt::skip]
global_asm!(
    ".section .data,\"dw\"",
    ".p2align 3",
    "nrdma_td_deserializer: .quad 0, 0",
    ".asciz \".?AVIDeserializer@neuraylib@mi@@\"",
    ".section .rdata,\"dr\"",
    ".p2align 2",
    "nrdma_bcd_deserializer: .rva nrdma_td_deserializer",
    ".long 2, 0, -1, 0, 64",
    ".rva nrdma_chd_deserializer",
    "nrdma_chd_deserializer: .long 0, 0, 3",
    ".rva nrdma_bca_deserializer",
    "nrdma_bca_deserializer: .rva nrdma_bcd_deserializer",
    ".rva nrdma_bcd_deserializer_declare",
    ".rva nrdma_bcd_interface",
    ".long 0",
    ".p2align 3",
    ".globl nrdma_col_deserializer",
    "nrdma_col_deserializer: .long 1, 0, 0",
    ".rva nrdma_td_deserializer",
    ".rva nrdma_chd_deserializer",
    ".rva nrdma_col_deserializer",
    ".text",
);
// mi::neuraylib::IJob_execution_context
#[rustfmt::skip]
global_asm!(
    ".section .data,\"dw\"",
    ".p2align 3",
    "nrdma_td_execution_context: .quad 0, 0",
    ".asciz \".?AVIJob_execution_context@neuraylib@mi@@\"",
    ".section .rdata,\"dr\"",
    ".p2align 2",
    "nrdma_bcd_execution_context: .rva nrdma_td_execution_context",
    ".long 0, 0, -1, 0, 64",
    ".rva nrdma_chd_execution_context",
    "nrdma_chd_execution_context: .long 0, 0, 1",
    ".rva nrdma_bca_execution_context",
    "nrdma_bca_execution_context: .rva nrdma_bcd_execution_context",
    ".long 0",
    ".p2align 3",
    ".globl nrdma_col_execution_context",
    "nrdma_col_execution_context: .long 1, 0, 0",
    ".rva nrdma_td_execution_context",
    ".rva nrdma_chd_execution_context",
    ".rva nrdma_col_execution_context",
    ".text",
);

unsafe extern "C" {
    #[link_name = "nrdma_col_buffer"]
    pub(crate) safe static BUFFER: u8;
    #[link_name = "nrdma_col_context"]
    pub(crate) safe static CONTEXT: u8;
    #[link_name = "nrdma_col_scheduler"]
    pub(crate) safe static SCHEDULER: u8;
    #[link_name = "nrdma_col_dice_configuration"]
    pub(crate) safe static DICE_CONFIGURATION: u8;
    #[link_name = "nrdma_col_serializer"]
    pub(crate) safe static SERIALIZER: u8;
    #[link_name = "nrdma_col_deserializer"]
    pub(crate) safe static DESERIALIZER: u8;
    #[link_name = "nrdma_col_execution_context"]
    pub(crate) safe static EXECUTION_CONTEXT: u8;
}
