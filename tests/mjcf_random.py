"""Random MJCF files: trees of all joints, defaults, tendons, actuators and equalities."""

import numpy as np


class RandomFile:
    """The text of a random file, `text`. With `odd`, it may have parts that a model cannot hold."""

    def __init__(self, seed: int, odd: bool) -> None:
        self.rng, self.odd, self.count = np.random.default_rng(seed), odd, 0
        self.joints: list[str] = []  # of one coordinate
        self.others: list[str] = []
        self.sites: list[str] = []
        self.bodies: list[str] = []
        self.tendons: list[str] = []
        worldbody = self.site() + "".join(self.body(0) for _ in range(self.rng.integers(1, 4)))
        parts = [self.compiler(), self.option(), self.defaults(), f"<worldbody>{worldbody}</worldbody>"]
        for section, make, most in (
            ("tendon", self.tendon, 3),
            ("actuator", self.actuator, 5),
            ("equality", self.equality, 3),
        ):
            parts.append(f"<{section}>{''.join(make() for _ in range(self.rng.integers(most)))}</{section}>")
        self.text = f"<mujoco>{''.join(parts)}</mujoco>"

    # ---- numbers and names

    def p(self, chance: float) -> bool:
        return bool(self.rng.random() < chance)

    def normal(self, n: int, scale: float = 1.0) -> str:
        return " ".join(f"{x:.4f}" for x in scale * self.rng.standard_normal(n))

    def between(self, low: float, high: float, n: int = 1) -> str:
        return " ".join(f"{x:.4f}" for x in self.rng.uniform(low, high, n))

    def name(self, kind: str, known: list[str]) -> str:
        self.count += 1
        known.append(f"{kind}{self.count}")
        return known[-1]

    def any(self, names: list[str], n: int = 1) -> list[str]:
        return [str(x) for x in self.rng.choice(names, n, replace=False)]

    def sometimes(self, chance: float, text: str) -> str:
        return f" {text}" if self.p(chance) else ""

    # ---- the head

    def compiler(self) -> str:
        angle, sequence = self.rng.choice(["radian", "degree"]), self.rng.choice(["xyz", "ZYX", "zXz"])
        more = self.sometimes(0.2, 'inertiafromgeom="true"') + self.sometimes(0.2, 'balanceinertia="true"')
        more += self.sometimes(0.2, 'boundmass="0.5" boundinertia="0.01"') + self.sometimes(0.1, 'fusestatic="true"')
        return f'<compiler angle="{angle}" eulerseq="{sequence}" autolimits="true"{more}/>'

    def option(self) -> str:
        flags = ("spring", "damper", "gravity", "actuation", "clampctrl", "constraint", "filterparent")
        off = "".join(self.sometimes(0.06, f'{flag}="disable"') for flag in flags)
        more = self.sometimes(0.1, 'actuatorgroupdisable="1 2"') + self.sometimes(0.1, 'integrator="implicitfast"')
        more += self.sometimes(0.05, 'density="1.2"') if self.odd else ""
        return f'<option gravity="{self.normal(3, 5.0)}"{more}><flag{off}/></option>'

    def defaults(self) -> str:
        b = f'<default class="b"><joint damping="{self.between(0, 1)}" frictionloss="0.1"/></default>'
        a = f'<joint armature="{self.between(0, 0.3)}" stiffness="{self.between(0, 3)}"/><geom density="800"/>{b}'
        return f'<default><joint damping="0.1"/><default class="a">{a}</default></default>'

    # ---- bodies

    def turned(self) -> str:
        ways = ("quat", 4), ("euler", 3), ("xyaxes", 6), ("zaxis", 3), ("axisangle", 4)
        name, n = ways[self.rng.integers(len(ways))]
        return self.sometimes(0.8, f'{name}="{self.normal(n)}"')

    def of_class(self) -> str:
        return self.sometimes(0.25, f'class="{self.rng.choice(["a", "b"])}"')

    def site(self) -> str:
        return f'<site name="{self.name("s", self.sites)}" pos="{self.normal(3, 0.2)}"{self.turned()}/>'

    def joint(self, kind: str) -> str:
        name = self.name("j", self.others if kind in ("ball", "free") else self.joints)
        out = f'<joint name="{name}" type="{kind}"' + self.sometimes(0.4, f'damping="{self.between(0, 2)}"')
        out += self.sometimes(0.4, f'stiffness="{self.between(0, 5)}"')
        out += self.sometimes(0.2, f'frictionloss="{self.between(0, 0.5)}"')
        if kind == "free":
            return out + "/>"
        out += self.of_class() + self.sometimes(0.3, f'armature="{self.between(0, 0.5)}"')
        out += self.sometimes(0.5, f'pos="{self.normal(3, 0.2)}"')
        if kind == "ball":
            return out + (self.sometimes(0.1, 'range="0 1"') if self.odd else "") + "/>"
        out += f' axis="{self.normal(3)}"' + self.sometimes(0.3, f'ref="{self.between(-1, 1)}"')
        out += self.sometimes(0.3, f'springref="{self.between(-1, 1)}"')
        out += self.sometimes(0.3, f'range="-2 {self.between(1, 2)}" margin="{self.between(0, 0.01)}"')
        torque = self.between(0.1, 3)
        return out + self.sometimes(0.15, f'actuatorfrcrange="-{torque} {torque}"') + "/>"

    def geom(self) -> str:
        kind = self.rng.choice(["sphere", "capsule", "box", "cylinder", "ellipsoid"])
        if kind == "capsule":
            shape = f'fromto="{self.normal(6, 0.3)}" size="{self.between(0.02, 0.1)}"'
        else:
            shape = f'size="{self.between(0.03, 0.2, 3)}" pos="{self.normal(3, 0.1)}"{self.turned()}'
        mass = self.sometimes(0.3, f'mass="{self.between(0.1, 2)}"')
        return f'<geom type="{kind}" {shape}{self.of_class()}{mass}/>'

    def inertial(self) -> str:
        tensor = f'diaginertia="{self.between(0.05, 0.06, 3)}"{self.turned()}'
        if self.p(0.5):
            tensor = f'fullinertia="{self.between(0.05, 0.07, 3)} {self.between(-0.01, 0.01, 3)}"'
        return f'<inertial mass="{self.between(0.2, 3)}" pos="{self.normal(3, 0.1)}" {tensor}/>'

    def body(self, depth: int) -> str:
        kinds = ["free"]
        if depth or self.p(0.65):
            kinds = [str(self.rng.choice(["hinge", "hinge", "slide"])) for _ in range(self.rng.integers(4))]
            if kinds and self.p(0.25):
                kinds[-1] = "ball"
        out = f'<body name="{self.name("b", self.bodies)}" pos="{self.normal(3, 0.3)}"{self.turned()}'
        out += self.sometimes(0.15, f'gravcomp="{self.between(0, 1.3)}"')
        if self.odd or kinds != ["free"]:  # a free joint cannot have armature
            out += self.sometimes(0.15, 'childclass="a"')
        out += f">{''.join(map(self.joint, kinds))}"
        out += (self.inertial() if self.p(0.3) else "") + self.geom() + (self.site() if self.p(0.6) else "")
        for _ in range(self.rng.integers(3) if depth < 3 else 0):
            inner = self.body(depth + 1)
            out += f'<frame pos="{self.normal(3, 0.2)}"{self.turned()}>{inner}</frame>' if self.p(0.2) else inner
        return out + "</body>"

    # ---- what acts

    def tendon(self) -> str:
        out = self.sometimes(0.5, f'stiffness="{self.between(0, 5)}"')
        out += self.sometimes(0.5, f'damping="{self.between(0, 2)}"')
        out += self.sometimes(0.3, f'springlength="{self.between(0.1, 0.3)} {self.between(0.4, 1)}"')
        out += self.sometimes(0.2, f'range="-1 {self.between(0.5, 2)}" margin="{self.between(0, 0.1)}"')
        if self.odd:
            out += self.sometimes(0.1, 'armature="0.3"') + self.sometimes(0.1, 'actuatorfrcrange="-0.5 0.2"')
        if self.p(0.5) and self.joints:
            chosen = self.any(self.joints, min(len(self.joints), 2))
            inside = "".join(f'<joint joint="{j}" coef="{self.normal(1)}"/>' for j in chosen)
            return f'<fixed name="{self.name("t", self.tendons)}"{out}>{inside}</fixed>'
        if len(self.sites) < 2:
            return ""
        chosen = self.any(self.sites, min(len(self.sites), 3))
        inside = "".join(f'<site site="{s}"/>' for s in chosen)
        return f'<spatial name="{self.name("t", self.tendons)}"{out}>{inside}</spatial>'

    def actuator(self) -> str:
        kind = str(self.rng.choice(["motor", "position", "velocity", "general", "damper"]))
        if self.odd and self.p(0.1):
            kind = str(self.rng.choice(["intvelocity", "cylinder", "pid"]))
        places = {"joint": self.joints + self.others, "site": self.sites, "tendon": self.tendons}
        where = str(self.rng.choice([place for place, names in places.items() if names]))
        on = f'{where}="{self.any(places[where])[0]}"' + self.sometimes(0.6, f'gear="{self.normal(6)}"')
        if where == "joint" and self.p(0.2) and kind != "pid":
            on = on.replace("joint=", "jointinparent=")
        elif on.split('"')[1] in self.joints:
            on += self.sometimes(0.2, f'armature="{self.between(0, 0.2)}" damping="{self.between(0, 0.2)}"')
        on += self.sometimes(0.3, f'forcerange="{self.between(-1, 0)} {self.between(0, 1)}"')
        on += self.sometimes(0.1, f'group="{self.rng.integers(4)}"')
        if kind == "damper":
            on += ' ctrlrange="0 1" kv="2"'
        elif kind != "pid":
            on += self.sometimes(0.3, f'ctrlrange="{self.between(-1, 0)} {self.between(0, 1)}"')
        if kind == "position":
            on += f' kp="{self.between(1, 9)}"' + self.sometimes(0.5, f'kv="{self.between(0, 3)}"')
        elif kind == "velocity":
            on += f' kv="{self.between(0, 3)}"'
        elif kind == "general":
            gain, bias = self.rng.choice(["fixed", "affine"]), self.rng.choice(["none", "affine"])
            on += f' gaintype="{gain}" biastype="{bias}" gainprm="{self.normal(3)}" biasprm="{self.normal(3)}"'
        return f"<{kind} {on}/>"

    def equality(self) -> str:
        kind = str(self.rng.choice(["connect", "weld", "joint", "tendon"]))
        if kind == "joint" and len(self.joints) > 1:
            first, second = self.any(self.joints, 2)
            c = self.normal(int(self.rng.integers(1, 6)))
            return f'<joint joint1="{first}" joint2="{second}" polycoef="{c}"/>'
        if kind == "tendon" and self.tendons:
            return f'<tendon tendon1="{self.any(self.tendons)[0]}" polycoef="{self.normal(1)} 0 0 0 0"/>'
        if kind in ("connect", "weld") and len(self.sites) > 1 and self.p(0.5):
            first, second = self.any(self.sites, 2)
            return f'<{kind} site1="{first}" site2="{second}"/>'
        if kind in ("connect", "weld") and len(self.bodies) > 1:
            first, second = self.any(self.bodies, 2)
            anchor = f' anchor="{self.normal(3, 0.2)}"' if kind == "connect" else self.sometimes(0.3, 'torquescale="0"')
            return f'<{kind} body1="{first}" body2="{second}"{anchor}/>'
        return ""
