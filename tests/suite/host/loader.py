"""Holds memory in one known way and says so: each act is a mark, heard before the next begins.

loader.py MODE; sizes are MiB << 20 of what is said in the test.
"""
import mmap, os, signal, socket, sys, time

MIB = 1 << 20
PAGE = 4096


def mark(name):
    address = os.environ["NOTIFY_SOCKET"]
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notify:
        notify.connect("\0" + address[1:] if address[0] == "@" else address)
        notify.send(f"X_STAGE={name}\nMONOTONIC_USEC={time.monotonic_ns() // 1000}\n".encode())
        ours, theirs = os.pipe()
        socket.send_fds(notify, [b"BARRIER=1"], [theirs])
        os.close(theirs)
        os.read(ours, 1)
        os.close(ours)


def touch(memory, size):
    for at in range(0, size, PAGE):
        memory[at] = 1


def end(children):
    for pid in children:
        os.kill(pid, signal.SIGTERM)
        os.waitpid(pid, 0)


def anonymous(size):
    memory = mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    touch(memory, size)
    return memory


mode = sys.argv[1]
if mode == "exec":
    # Four programs that share nothing.
    script = "import mmap, signal, os, sys\nm = mmap.mmap(-1, 64 << 20, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)\n" \
             "for at in range(0, 64 << 20, 4096): m[at] = 1\nos.write(1, b'.')\nsignal.pause()"
    children = []
    for _ in range(4):
        ours, theirs = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.dup2(theirs, 1)
            os.execv(sys.executable, [sys.executable, "-c", script])
        os.close(theirs)
        os.read(ours, 1)
        children.append(pid)
    mark("held")
    end(children)
elif mode == "grow":
    # Until it is killed.
    mark("begun")
    blocks = []
    while True:
        blocks.append(anonymous(8 * MIB))
        time.sleep(0.01)
elif mode == "hold":
    heap = anonymous(int(sys.argv[2]) * MIB)
    open(sys.argv[3], "w").close()
    signal.pause()
else:
    sys.exit(f"no such mode: {mode}")
