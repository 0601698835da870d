/* What hosts have included or defined before our headers: the real thing where this system has it, and the
 * macros of windows.h, d3d12.h and X11 everywhere. */
#if defined(__has_include)
#  if __has_include(<X11/Xlib.h>)
#    include <X11/X.h>
#    include <X11/Xlib.h>
#    include <X11/Xutil.h>
#  endif
#endif
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/param.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <syslog.h>
#include <termios.h>
#include <unistd.h>

/* X11, if it was not there. */
#ifndef None
#  define None 0L
#  define Status int
#  define Bool int
#  define True 1
#  define False 0
#  define Success 0
#  define Always 2
#  define KeyPress 2
#  define Above 0
#  define Below 1
#  define Unsorted 0
#  define CursorShape 0
#endif

/* windows.h, rpc.h, wingdi.h, combaseapi.h. */
#define interface struct
#define near
#define far
#define small char
#define hyper long long
#define IN
#define OUT
#define OPTIONAL
#define CONST const
#define VOID void
#define ERROR 0
#define NO_ERROR 0L
#define DELETE 0x00010000L
#define STRICT 1
#define CALLBACK
#define WINAPI
#define PASCAL
#define cdecl
#define pascal
#define Yield()
#define TRANSPARENT 1
#define OPAQUE 2
#define RELATIVE 2
#define ABSOLUTE 1
#define PASSTHROUGH 19
#define INFINITE 0xFFFFFFFF
#define GetObject GetObjectA
#define GetMessage GetMessageA
#define SendMessage SendMessageA
#define CreateEvent CreateEventA
#define UUID GUID
#define DIFFERENCE 11
#define DOMAIN 1
#define OVERFLOW 3
#define UNDERFLOW 4
