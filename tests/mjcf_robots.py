"""MJCF files of robots as collections have them: classes, tendons, couplings, loops, servos with limits."""


def _leg(name: str, x: float, y: float) -> str:
    return f"""<body name="{name}_hip" pos="{x} {y} 0"><joint class="abduction" name="{name}_hip_joint"/>
  <inertial mass="0.7" pos="0 0 0" diaginertia="0.0005 0.0007 0.0005"/>
  <geom class="visual" type="box" size="0.04 0.04 0.04"/><geom class="collision" type="cylinder" size="0.046 0.02"/>
  <body name="{name}_thigh" pos="0 {0.08 if y > 0 else -0.08} 0"><joint class="hip" name="{name}_thigh_joint"/>
    <inertial mass="1" pos="0 0 -0.03" fullinertia="0.0055 0.0051 0.00097 2e-5 -2e-4 -1e-5"/>
    <body name="{name}_calf" pos="0 0 -0.213"><joint class="knee" name="{name}_calf_joint"/>
      <inertial mass="0.15" pos="0 0 -0.1" diaginertia="0.0015 0.0015 0.00003"/>
      <geom name="{name}" class="foot"/><site name="{name}_foot" pos="0 0 -0.213"/></body></body></body>"""


_FEET = {"FR": (0.19, -0.05), "FL": (0.19, 0.05), "RR": (-0.19, -0.05), "RL": (-0.19, 0.05)}
_SERVOS = "".join(
    f'<position class="{c}" name="{leg}_{j}" joint="{leg}_{j}_joint"/>'
    for leg in _FEET
    for c, j in (("abduction", "hip"), ("hip", "thigh"), ("knee", "calf"))
)

QUADRUPED = f"""<mujoco model="quadruped"><compiler angle="radian" autolimits="true"/>
<option cone="elliptic" impratio="100"/>
<default><default class="robot">
  <geom friction="0.6" margin="0.001"/><joint axis="0 1 0" damping="2" armature="0.01" frictionloss="0.2"/>
  <position kp="100" kv="1" forcerange="-23.7 23.7"/>
  <default class="abduction"><joint axis="1 0 0" damping="1" range="-0.863 0.863" actuatorfrcrange="-20 20"/>
    <position ctrlrange="-0.863 0.863"/></default>
  <default class="hip"><joint range="-0.686 4.501"/><position ctrlrange="-0.686 4.501"/></default>
  <default class="knee"><joint range="-2.818 -0.888"/>
    <position forcerange="-35.55 35.55" ctrlrange="-2.818 -0.888"/></default>
  <default class="visual"><geom contype="0" conaffinity="0" group="2"/></default>
  <default class="collision"><geom group="3"/>
    <default class="foot"><geom type="sphere" size="0.023" pos="0 0 -0.213" solimp="0.015 1 0.031"/></default>
  </default></default></default>
<worldbody><geom name="floor" type="plane" size="0 0 0.05"/>
  <body name="trunk" pos="0 0 0.445" childclass="robot"><freejoint/>
    <inertial mass="5.2" pos="0.02 0 0" diaginertia="0.0168 0.063 0.0716"/>
    <camera name="track" mode="trackcom" pos="1 0 1"/><site name="imu"/>
    {"".join(_leg(name, *at) for name, at in _FEET.items())}</body></worldbody>
<contact><exclude body1="trunk" body2="FR_hip"/></contact><actuator>{_SERVOS}</actuator>
<sensor><accelerometer site="imu"/></sensor>
<keyframe><key name="home" qpos="0 0 0.27 1 0 0 0 {"0 0.9 -1.8 " * 4}" ctrl="{"0 0.9 -1.8 " * 4}"/></keyframe>
</mujoco>"""


def _finger(name: str, y: float) -> str:
    return f"""<body name="{name}_knuckle" pos="0.02 {y} 0"><joint name="{name}J4" axis="0 0 1" range="-0.35 0.35"/>
  <inertial mass="0.008" pos="0 0 0" diaginertia="3e-7 3e-7 3e-7"/>
  <body name="{name}_proximal"><joint name="{name}J3" range="-0.26 1.57"/>
    <inertial mass="0.03" pos="0.02 0 0" diaginertia="1e-6 1e-5 1e-5"/>
    <body name="{name}_middle" pos="0.045 0 0"><joint name="{name}J2" range="0 1.57"/>
      <inertial mass="0.017" pos="0.012 0 0" diaginertia="5e-7 2.7e-6 2.7e-6"/>
      <body name="{name}_distal" pos="0.025 0 0"><joint name="{name}J1" range="0 1.57"/>
        <inertial mass="0.013" pos="0.012 0 0" diaginertia="4e-7 1.2e-6 1.2e-6"/>
        <site name="{name}_tip" pos="0.026 0 0"/>
      </body></body></body></body>"""


_FINGERS = ("FF", "MF", "RF")

HAND = f"""<mujoco model="hand"><compiler angle="radian" autolimits="true"/>
<default><joint axis="0 1 0" damping="0.05" armature="0.0002" frictionloss="0.01"/></default>
<worldbody><body name="palm" quat="0 1 0 1"><inertial mass="0.3" pos="0.035 0 0" diaginertia="5e-4 4e-4 2.8e-4"/>
  <joint name="wrist" range="-0.7 0.49"/>
  {"".join(_finger(name, 0.03 * k - 0.03) for k, name in enumerate(_FINGERS))}</body></worldbody>
<tendon>{
    "".join(
        f'<fixed name="{f}J0"><joint joint="{f}J2" coef="1"/><joint joint="{f}J1" coef="1"/></fixed>' for f in _FINGERS
    )
}</tendon>
<equality>{"".join(f'<joint joint1="{f}J1" joint2="{f}J2" polycoef="0 0.8 0.1 0 0"/>' for f in _FINGERS)}</equality>
<actuator><position joint="wrist" kp="10" kv="0.1"/>{
    "".join(
        f'<position joint="{f}J3" kp="1" ctrlrange="-0.26 1.57"/><position tendon="{f}J0" kp="1" forcerange="-1 1"/>'
        for f in _FINGERS
    )
}</actuator></mujoco>"""


def _arm(side: str, y: float) -> str:
    links = (
        ("0 0 1", "0 0 0.1"),
        ("0 1 0", "0 0 0.1"),
        ("0 1 0", "0 0 0.3"),
        ("1 0 0", "0.25 0 0"),
        ("0 1 0", "0.1 0 0"),
    )
    out = f'<body name="{side}_base" pos="0 {y} 0"><geom type="cylinder" size="0.06 0.05"/>'
    for k, (axis, place) in enumerate(links):
        out += f"""<body name="{side}_link{k}" pos="{place}" gravcomp="1">
  <joint name="{side}_joint{k}" axis="{axis}" range="-2.5 2.5" armature="0.1" damping="2"/>
  <geom type="capsule" fromto="0 0 0 0.05 0 0.05" size="0.03" mass="0.6"/>"""
    return out + f'<site name="{side}_hand" pos="0.05 0 0"/>' + "</body>" * 6


DUAL_ARM = f"""<mujoco model="dual_arm"><compiler angle="radian" autolimits="true"/>
<worldbody>{_arm("left", 0.3)}{_arm("right", -0.3)}
  <body name="bar" pos="0.5 0 0.5"><freejoint/><geom type="box" size="0.02 0.3 0.02" mass="0.4"/>
    <site name="bar_left" pos="0 0.3 0"/><site name="bar_right" pos="0 -0.3 0"/></body></worldbody>
<equality><weld site1="left_hand" site2="bar_left"/><connect site1="right_hand" site2="bar_right"/></equality>
<actuator>{
    "".join(
        f'<position joint="{side}_joint{k}" kp="50" kv="5" ctrlrange="-2.5 2.5"/>'
        for side in ("left", "right")
        for k in range(5)
    )
}</actuator></mujoco>"""

BIPED = """<mujoco model="biped"><compiler angle="degree" autolimits="true"/>
<default><joint damping="1" solimplimit="0.9 0.99 0.01" armature="0.01"/><geom type="capsule"/>
  <equality solref="0.005 1"/></default>
<worldbody><body name="pelvis" pos="0 0 1"><freejoint/><inertial mass="10" pos="0 0 0" diaginertia="0.09 0.05 0.08"/>
  <body name="hip" pos="0 0.1 0"><joint name="hip_roll" axis="1 0 0" range="-15 22.5"/>
    <geom fromto="0 0 0 0 0 -0.05" size="0.04" mass="1"/>
    <body name="thigh" pos="0 0 -0.1"><joint name="hip_pitch" axis="0 1 0" range="-50 80"/>
      <geom fromto="0 0 0 0 0 -0.35" size="0.04" mass="3"/>
      <body name="rod" pos="0 0.05 0"><joint name="rod" type="ball" damping="0.01"/>
        <geom fromto="0 0 0 0.1 0 -0.49" size="0.01" mass="0.15"/></body>
      <body name="shin" pos="0 0 -0.35"><joint name="knee" axis="0 1 0" range="-164 -37" ref="-60"/>
        <joint name="shin" axis="0 1 0" pos="0 0 -0.06" stiffness="1500" range="-20 20"/>
        <geom fromto="0 0 0 0.1 0 -0.2" size="0.03" mass="0.8"/>
        <body name="tarsus" pos="0.1 0 -0.2"><joint name="tarsus" axis="0 1 0" range="50 170" ref="60"/>
          <geom fromto="0 0 0 -0.1 0 -0.3" size="0.02" mass="0.6"/></body></body></body></body></body></worldbody>
<equality><connect body1="rod" body2="tarsus" anchor="0.1 0 -0.49"/></equality>
<actuator><motor joint="hip_roll" gear="25" ctrlrange="-4.5 4.5"/>
  <motor joint="hip_pitch" gear="16" ctrlrange="-12.2 12.2"/><motor joint="knee" gear="16"/></actuator></mujoco>"""

ROBOTS = {"quadruped": QUADRUPED, "hand": HAND, "dual_arm": DUAL_ARM, "biped": BIPED}
