"""MJCF models as people write them: legs, arms, hands, vehicles, with their springs, tendons and actuators."""

CARTPOLE = """<mujoco model="cartpole">
  <compiler angle="radian"/><option timestep="0.01"/>
  <default><joint damping="0.05"/><geom density="800"/></default>
  <worldbody>
    <body name="cart" pos="0 0 1">
      <joint name="slider" type="slide" axis="1 0 0" limited="true" range="-1.8 1.8" armature="0.3"/>
      <geom type="box" size="0.2 0.15 0.1"/>
      <body name="pole1">
        <joint name="hinge1" axis="0 1 0"/><geom type="capsule" fromto="0 0 0 0 0 0.6" size="0.045"/>
        <body name="pole2" pos="0 0 0.6">
          <joint name="hinge2" axis="0 1 0" springref="0.2" stiffness="3"/>
          <geom type="capsule" fromto="0 0 0 0.1 0 0.5" size="0.03"/>
        </body>
      </body>
    </body>
  </worldbody>
  <actuator><motor name="push" joint="slider" gear="10" ctrllimited="true" ctrlrange="-1 1"/></actuator>
</mujoco>"""

HOPPER = """<mujoco model="hopper">
  <compiler angle="degree"/>
  <default><joint armature="1" damping="1" limited="true"/><geom density="1000"/>
    <motor ctrllimited="true" ctrlrange="-1 1"/></default>
  <worldbody>
    <body name="torso" pos="0 0 1.25">
      <joint name="rootx" type="slide" axis="1 0 0" armature="0" damping="0" limited="false"/>
      <joint name="rootz" type="slide" axis="0 0 1" armature="0" damping="0" limited="false" ref="1.25"/>
      <joint name="rooty" type="hinge" axis="0 1 0" armature="0" damping="0" limited="false" pos="0 0 1.25"/>
      <geom type="capsule" fromto="0 0 0.2 0 0 -0.2" size="0.05"/>
      <body name="thigh" pos="0 0 -0.2">
        <joint name="thigh_joint" axis="0 -1 0" range="-150 0"/>
        <geom type="capsule" fromto="0 0 0 0 0 -0.45" size="0.05"/>
        <body name="leg" pos="0 0 -0.7">
          <joint name="leg_joint" axis="0 -1 0" pos="0 0 0.25" range="-150 0"/>
          <geom type="capsule" fromto="0 0 0.25 0 0 -0.25" size="0.04"/>
          <body name="foot" pos="0.0 0 -0.35">
            <joint name="foot_joint" axis="0 -1 0" pos="0 0 0.1" range="-45 45"/>
            <geom type="capsule" fromto="-0.13 0 0.1 0.26 0 0.1" size="0.06"/>
          </body>
        </body>
      </body>
    </body>
  </worldbody>
  <actuator>
    <motor joint="thigh_joint" gear="200"/><motor joint="leg_joint" gear="200"/><motor joint="foot_joint" gear="200"/>
  </actuator>
</mujoco>"""

WALKER = """<mujoco model="walker">
  <default>
    <joint damping="0.1" armature="0.01" stiffness="0"/>
    <default class="leg"><joint type="hinge" axis="0 -1 0" stiffness="5" springref="-20"/></default>
    <geom density="900" type="capsule"/>
  </default>
  <worldbody>
    <body name="torso" pos="0 0 1.3">
      <joint name="z" type="slide" axis="0 0 1" damping="0" armature="0"/>
      <joint name="x" type="slide" axis="1 0 0" damping="0" armature="0"/>
      <joint name="y" type="hinge" axis="0 1 0" damping="0" armature="0"/>
      <geom size="0.07 0.3"/>
      <body name="right_thigh" pos="0 -0.05 -0.3"><joint name="right_hip" class="leg"/>
        <geom pos="0 0 -0.22" size="0.05 0.22"/>
        <body name="right_shin" pos="0 0 -0.7"><joint name="right_knee" class="leg" pos="0 0 0.25"/>
          <geom size="0.04 0.25"/></body></body>
      <body name="left_thigh" pos="0 0.05 -0.3"><joint name="left_hip" class="leg"/>
        <geom pos="0 0 -0.22" size="0.05 0.22"/>
        <body name="left_shin" pos="0 0 -0.7"><joint name="left_knee" class="leg" pos="0 0 0.25"/>
          <geom size="0.04 0.25"/></body></body>
    </body>
  </worldbody>
  <actuator>
    <motor joint="right_hip" gear="100"/><position joint="right_knee" kp="40" kv="2"/>
    <velocity joint="left_hip" kv="3"/><motor joint="left_knee" gear="50"/>
  </actuator>
</mujoco>"""

CHEETAH = """<mujoco model="cheetah">
  <compiler angle="radian"/>
  <default><joint armature="0.1" damping="0.01" stiffness="8" limited="true"/><geom type="capsule"/></default>
  <option gravity="0 0 -9.81"/>
  <worldbody>
    <body name="torso" pos="0 0 0.7">
      <joint name="rootx" type="slide" axis="1 0 0" armature="0" damping="0" stiffness="0" limited="false"/>
      <joint name="rootz" type="slide" axis="0 0 1" armature="0" damping="0" stiffness="0" limited="false"/>
      <joint name="rooty" axis="0 1 0" armature="0" damping="0" stiffness="0" limited="false"/>
      <geom fromto="-0.5 0 0 0.5 0 0" size="0.046"/>
      <geom pos="0.6 0 0.1" axisangle="0 1 0 0.87" size="0.046 0.15"/>
      <body name="bthigh" pos="-0.5 0 0">
        <joint name="bthigh" axis="0 1 0" damping="6" range="-0.52 1.05" stiffness="240"/>
        <geom axisangle="0 1 0 -3.8" pos="0.1 0 -0.13" size="0.046 0.145"/>
        <body name="bshin" pos="0.16 0 -0.25">
          <joint name="bshin" axis="0 1 0" damping="4.5" range="-0.785 0.785" stiffness="180"/>
          <geom axisangle="0 1 0 -2.03" pos="-0.14 0 -0.07" size="0.046 0.15"/>
        </body>
      </body>
      <body name="fthigh" pos="0.5 0 0">
        <joint name="fthigh" axis="0 1 0" damping="4.5" range="-1.5 0.8" stiffness="180"/>
        <geom axisangle="0 1 0 0.52" pos="-0.07 0 -0.12" size="0.046 0.133"/>
      </body>
    </body>
  </worldbody>
  <actuator>
    <motor joint="bthigh" gear="120"/><motor joint="bshin" gear="90"/><motor joint="fthigh" gear="120"/>
  </actuator>
</mujoco>"""

SWIMMER = """<mujoco model="swimmer">
  <option gravity="0 0 0"/><compiler inertiafromgeom="true"/>
  <default><geom type="capsule" density="1000"/><joint armature="0.1"/></default>
  <worldbody>
    <body name="head">
      <joint name="x" type="slide" axis="1 0 0" armature="0"/><joint name="y" type="slide" axis="0 1 0" armature="0"/>
      <joint name="turn" type="hinge" axis="0 0 1" armature="0"/>
      <geom fromto="1.5 0 0 0.5 0 0" size="0.1"/>
      <body name="mid" pos="0.5 0 0"><joint name="rot2" axis="0 0 1"/><geom fromto="0 0 0 -1 0 0" size="0.1"/>
        <body name="back" pos="-1 0 0"><joint name="rot3" axis="0 0 1"/><geom fromto="0 0 0 -1 0 0" size="0.1"/></body>
      </body>
    </body>
  </worldbody>
  <actuator>
    <general joint="rot2" gainprm="30" biastype="affine" biasprm="1 -2 -0.5" ctrlrange="-1 1" ctrllimited="true"/>
    <general joint="rot3" gear="3" gaintype="affine" gainprm="5 0.5 -0.3" biastype="affine" biasprm="0.1 0.4 -0.2"/>
  </actuator>
</mujoco>"""

ANT = """<mujoco model="ant">
  <compiler angle="degree"/>
  <default><joint armature="1" damping="1"/><geom density="5" type="capsule"/></default>
  <worldbody>
    <body name="torso" pos="0 0 0.75">
      <freejoint name="root"/><geom type="sphere" size="0.25"/>
      <body name="leg1" pos="0.2 0.2 0"><joint name="hip1" axis="0 0 1"/><geom fromto="0 0 0 0.2 0.2 0" size="0.08"/>
        <body pos="0.2 0.2 0"><joint name="ankle1" axis="-1 1 0"/><geom fromto="0 0 0 0.4 0.4 0" size="0.08"/></body>
      </body>
      <body name="leg2" pos="-0.2 0.2 0"><joint name="hip2" axis="0 0 1"/><geom fromto="0 0 0 -0.2 0.2 0" size="0.08"/>
        <body pos="-0.2 0.2 0"><joint name="ankle2" axis="1 1 0"/><geom fromto="0 0 0 -0.4 0.4 0" size="0.08"/></body>
      </body>
      <body name="leg3" pos="0 -0.28 0"><joint name="hip3" axis="0 0 1"/><geom fromto="0 0 0 0 -0.28 0" size="0.08"/>
        <body pos="0 -0.28 0"><joint name="ankle3" axis="1 0 0"/><geom fromto="0 0 0 0 -0.56 0" size="0.08"/></body>
      </body>
    </body>
  </worldbody>
  <actuator>
    <motor joint="hip1" gear="150"/><motor joint="ankle1" gear="150"/><motor joint="hip2" gear="150"/>
    <motor joint="ankle2" gear="150"/><motor joint="hip3" gear="150"/><motor joint="ankle3" gear="150"/>
  </actuator>
</mujoco>"""

HUMANOID = """<mujoco model="humanoid">
  <compiler angle="degree"/>
  <default>
    <joint armature="0.01" damping="0.2" stiffness="1" solimplimit="0 0.99 0.01"/>
    <default class="big"><joint damping="5" stiffness="10"/></default>
    <geom type="capsule" density="1000"/>
  </default>
  <worldbody>
    <body name="torso" pos="0 0 1.4">
      <freejoint name="root"/>
      <geom fromto="0 -0.07 0 0 0.07 0" size="0.07"/><geom name="head" type="sphere" pos="0 0 0.19" size="0.09"/>
      <site name="imu" pos="0.1 0 0.05" euler="10 20 30"/>
      <body name="lower_waist" pos="-0.01 0 -0.26">
        <geom fromto="0 -0.06 0 0 0.06 0" size="0.06"/>
        <joint name="abdomen_z" class="big" axis="0 0 1" pos="0 0 0.065" range="-45 45" armature="0.02"/>
        <joint name="abdomen_y" class="big" axis="0 1 0" pos="0 0 0.065" range="-75 30" armature="0.02"/>
        <body name="pelvis" pos="0 0 -0.165">
          <joint name="abdomen_x" class="big" axis="1 0 0" pos="0 0 0.1" range="-35 35" armature="0.02"/>
          <geom fromto="0 -0.07 0 0 0.07 0" size="0.09"/>
          <body name="right_thigh" pos="0 -0.1 -0.04">
            <joint name="right_hip_x" class="big" axis="1 0 0" range="-25 5"/>
            <joint name="right_hip_z" class="big" axis="0 0 1" range="-60 35"/>
            <joint name="right_hip_y" class="big" axis="0 1 0" range="-110 20" stiffness="20"/>
            <geom fromto="0 0 0 0 0.01 -0.34" size="0.06"/>
            <body name="right_shin" pos="0 0.01 -0.403">
              <joint name="right_knee" axis="0 -1 0" pos="0 0 0.02" range="-160 2"/>
              <geom fromto="0 0 0 0 0 -0.3" size="0.049"/>
              <body name="right_foot" pos="0 0 -0.39">
                <joint name="right_ankle_y" axis="0 1 0" pos="0 0 0.08" stiffness="6"/>
                <joint name="right_ankle_x" axis="1 0 0.5" pos="0 0 0.04" stiffness="3"/>
                <geom fromto="-0.07 -0.02 0 0.14 -0.04 0" size="0.027"/>
              </body>
            </body>
          </body>
        </body>
      </body>
      <body name="left_arm" pos="0 0.17 0.06">
        <joint name="left_shoulder1" axis="2 -1 1"/><joint name="left_shoulder2" axis="0 1 1"/>
        <geom fromto="0 0 0 0.16 0.16 -0.16" size="0.04"/>
      </body>
    </body>
  </worldbody>
  <tendon><fixed name="left_hip_knee"><joint joint="right_hip_y" coef="-1"/><joint joint="right_knee" coef="0.5"/>
  </fixed></tendon>
  <actuator>
    <motor gear="100" joint="abdomen_y"/><motor gear="100" joint="abdomen_z"/><motor gear="100" joint="abdomen_x"/>
    <motor gear="300" joint="right_hip_y"/><motor gear="200" joint="right_knee"/>
    <motor gear="25" joint="left_shoulder1"/>
    <motor gear="20" tendon="left_hip_knee"/>
  </actuator>
  <keyframe><key name="squat" qpos="0 0 0.6 0.9 0.1 0.2 0.3 0.1 0.2 0.1 0 0 0.3 -0.4 0.2 0.1 0.3 -0.2"
    qvel="1 2 3 0.1 0.2 0.3 0 0 0 0 0 0 0 0 0 0 0" ctrl="1 2 3 4 5 6 7" time="0.5"/></keyframe>
</mujoco>"""

ARM = """<mujoco model="arm">
  <compiler angle="radian"/>
  <default><joint armature="0.1" damping="1"/>
    <general gaintype="fixed" biastype="affine" gainprm="4500" biasprm="0 -4500 -450" forcerange="-87 87"/></default>
  <worldbody>
    <body name="link0"><inertial mass="0.63" pos="0 0 0" diaginertia="0.003 0.004 0.005"/>
      <body name="link1" pos="0 0 0.333" gravcomp="1">
        <inertial mass="4.97" pos="0.004 0.002 -0.05" fullinertia="0.7 0.706 0.009 -0.0001 0.0067 0.02"/>
        <joint name="joint1" axis="0 0 1" range="-2.9 2.9"/>
        <body name="link2" quat="1 -1 0 0" gravcomp="0.5">
          <inertial mass="0.65" pos="-0.003 -0.03 0.0035" diaginertia="0.026 0.01 0.028" quat="0.9 0.1 0.2 0.3"/>
          <joint name="joint2" axis="0 0 1" range="-1.7 1.7"/>
          <body name="link3" pos="0 -0.316 0" quat="1 1 0 0">
            <inertial mass="3.2" pos="0.027 0.04 -0.07" diaginertia="0.03 0.04 0.02"/>
            <joint name="joint3" axis="0 0 1"/>
            <body name="hand" pos="0.08 0 0.1" quat="0.92 0 0 -0.38">
              <inertial mass="0.7" pos="0 0 0.03" diaginertia="0.001 0.0025 0.0017"/>
              <body name="finger" pos="0 0 0.06"><inertial mass="0.015" pos="0 0 0" diaginertia="2e-4 2e-4 2e-4"/>
                <joint name="finger" type="slide" axis="0 1 0" range="0 0.04" armature="0.02" damping="10"/></body>
            </body>
          </body>
        </body>
      </body>
    </body>
  </worldbody>
  <actuator>
    <general name="a1" joint="joint1"/><general name="a2" joint="joint2" forcerange="-30 30"/>
    <general name="a3" joint="joint3" gainprm="35" biasprm="0 -35 -3"/>
    <general name="a4" joint="finger" gainprm="10" biasprm="0 -100 -10" forcerange="-2 2" ctrlrange="0 255"/>
  </actuator>
</mujoco>"""

HAND = """<mujoco model="hand">
  <compiler angle="radian"/>
  <default><joint armature="0.0002" damping="0.05" frictionloss="0.01"/><geom type="capsule" density="1200"/></default>
  <worldbody>
    <body name="palm" pos="0 0 0.2"><geom type="box" size="0.04 0.05 0.01"/>
      <joint name="wrist" axis="0 1 0" stiffness="0.4" springref="0.1"/>
      <body name="f1" pos="0.04 0 0"><joint name="f1_1" axis="0 1 0"/><geom fromto="0 0 0 0.04 0 0" size="0.008"/>
        <body name="f2" pos="0.04 0 0"><joint name="f1_2" axis="0 1 0"/><geom fromto="0 0 0 0.03 0 0" size="0.007"/>
          <site name="s2" pos="0.02 0 0.007"/>
          <body name="f3" pos="0.03 0 0"><joint name="f1_3" axis="0 1 0"/><geom fromto="0 0 0 0.02 0 0" size="0.006"/>
            <site name="tip" pos="0.02 0 0.006"/></body></body></body>
      <site name="s0" pos="0.03 0 0.012"/>
      <body name="t1" pos="0.02 0.05 0"><joint name="t_1" axis="0 0 1"/><joint name="t_2" axis="1 0 0"/>
        <geom fromto="0 0 0 0.03 0.03 0" size="0.008"/></body>
    </body>
  </worldbody>
  <tendon>
    <fixed name="coupled" stiffness="0.3" damping="0.01" springlength="0.1"><joint joint="f1_2" coef="1"/>
      <joint joint="f1_3" coef="-0.8"/></fixed>
    <fixed name="slack" stiffness="2" springlength="-0.1 0.2"><joint joint="t_1" coef="1"/><joint joint="t_2" coef="2"/>
    </fixed>
    <spatial name="flexor" stiffness="20" damping="0.1" limited="true" range="0 0.2"><site site="s0"/><site site="s2"/>
      <site site="tip"/></spatial>
  </tendon>
  <actuator>
    <position joint="wrist" kp="2" kv="0.1"/><position tendon="coupled" kp="0.5"/>
    <motor tendon="flexor" gear="-1.5"/><general tendon="flexor" gainprm="-3" biastype="affine" biasprm="0.1 -5 -0.2"/>
    <velocity joint="t_1" kv="0.02" gear="3"/>
  </actuator>
  <equality><tendon tendon1="slack" polycoef="0.1 0 0 0 0"/></equality>
</mujoco>"""

QUADRUPED = """<mujoco model="quadruped">
  <compiler angle="radian" autolimits="true"/>
  <default>
    <joint axis="0 1 0" damping="0.1" armature="0.011" frictionloss="0.2"/>
    <geom type="box" density="700"/>
    <position kp="60" kv="1" forcerange="-33.5 33.5"/>
  </default>
  <worldbody>
    <body name="trunk" pos="0 0 0.3"><freejoint/><geom size="0.19 0.05 0.06"/>
      <body name="FR_hip" pos="0.19 -0.05 0"><joint name="FR_hip" axis="1 0 0" range="-0.86 0.86"/>
        <geom size="0.04 0.03 0.03"/>
        <body name="FR_thigh" pos="0 -0.08 0"><joint name="FR_thigh" range="-0.7 3.9"/>
          <geom size="0.02 0.02 0.1" pos="0 0 -0.1"/>
          <body name="FR_calf" pos="0 0 -0.213"><joint name="FR_calf" range="-2.8 -0.89"/>
            <geom type="cylinder" size="0.015 0.1" pos="0 0 -0.1"/></body></body></body>
      <body name="RL_hip" pos="-0.19 0.05 0"><joint name="RL_hip" axis="1 0 0" range="-0.86 0.86"/>
        <geom size="0.04 0.03 0.03"/>
        <body name="RL_thigh" pos="0 0.08 0"><joint name="RL_thigh" range="-0.7 3.9"/>
          <geom size="0.02 0.02 0.1" pos="0 0 -0.1"/></body></body>
    </body>
  </worldbody>
  <actuator>
    <position joint="FR_hip"/><position joint="FR_thigh"/><position joint="FR_calf"/><position joint="RL_hip"/>
    <position joint="RL_thigh" inheritrange="1"/>
  </actuator>
</mujoco>"""

GRIPPER = """<mujoco model="gripper">
  <compiler angle="radian" autolimits="true"/>
  <default><joint axis="1 0 0" armature="0.005" damping="0.1"/><geom type="box" size="0.01 0.02 0.03"/></default>
  <worldbody>
    <body name="base"><geom size="0.03 0.03 0.02"/>
      <body name="right_driver" pos="0 0.03 0.05"><joint name="right_driver" range="0 0.8"/><geom/>
        <body name="right_coupler" pos="0 0.03 0"><joint name="right_coupler" stiffness="0.05" springref="2.6"/><geom/>
        </body></body>
      <body name="left_driver" pos="0 -0.03 0.05" quat="0 0 0 1"><joint name="left_driver" range="0 0.8"/><geom/>
        <body name="left_coupler" pos="0 0.03 0"><joint name="left_coupler" stiffness="0.05" springref="2.6"/><geom/>
        </body></body>
    </body>
  </worldbody>
  <tendon><fixed name="split"><joint joint="right_driver" coef="0.5"/><joint joint="left_driver" coef="0.5"/></fixed>
  </tendon>
  <equality><joint joint1="right_driver" joint2="left_driver" polycoef="0 1 0 0 0"/></equality>
  <actuator><general name="fingers" tendon="split" ctrlrange="0 255" gainprm="0.3137" biastype="affine"
    biasprm="0 -100 -10"/></actuator>
</mujoco>"""

BALLS = """<mujoco model="balls">
  <compiler angle="radian"/>
  <worldbody>
    <body name="swing" pos="0 0 2"><joint name="ball" type="ball" damping="0.3" armature="0.2" stiffness="4"
        pos="0.1 0 0.2"/>
      <geom type="capsule" fromto="0 0 0 0.1 0 -0.5" size="0.05"/>
      <body name="lower" pos="0.1 0 -0.5"><joint name="ball2" type="ball" armature="0.05"/>
        <geom type="ellipsoid" size="0.1 0.05 0.2" pos="0 0.05 -0.1"/>
        <site name="grip" pos="0 0.1 0" euler="0.1 0.2 0.3"/>
      </body>
    </body>
  </worldbody>
  <actuator>
    <motor joint="ball" gear="1 2 3"/><motor jointinparent="ball2" gear="0.5 -1 2"/>
    <motor site="grip" gear="1 2 -1 0.3 0.2 -0.5"/><velocity joint="ball2" kv="0.2" gear="1 0 0"/>
  </actuator>
</mujoco>"""

DRONE = """<mujoco model="drone">
  <worldbody>
    <body name="frame" pos="0 0 1"><joint name="root" type="free" damping="0.1" stiffness="2"/>
      <geom type="box" size="0.1 0.1 0.02" mass="0.8" pos="0.01 0 0"/>
      <site name="r1" pos="0.14 0.14 0"/><site name="r2" pos="-0.14 0.14 0"/><site name="r3" pos="0 -0.2 0"/>
      <body name="camera" pos="0.1 0 -0.03"><joint name="pan" axis="0 0 1" armature="1e-4" damping="0.01"/>
        <joint name="tilt" axis="0 1 0" pos="0.01 0 0.02" ref="10" armature="1e-4" stiffness="0.1" springref="20"/>
        <geom type="sphere" size="0.02" mass="0.05" pos="0.02 0 0"/><camera name="eye" pos="0.03 0 0"/></body>
    </body>
  </worldbody>
  <actuator>
    <motor site="r1" gear="0 0 1 0 0 -0.02" ctrllimited="true" ctrlrange="0 0.5"/>
    <motor site="r2" gear="0 0 1 0 0 0.02"/><motor site="r3" gear="0 0 1 0 0 0.01"/>
    <position joint="pan" kp="0.5" kv="0.01"/><motor joint="root" gear="1 2 3 0.1 0.2 0.3"/>
    <motor jointinparent="root" gear="0.1 0 0 -0.3 0.2 0.1"/>
  </actuator>
</mujoco>"""

CRANE = """<mujoco model="crane">
  <compiler angle="radian"/>
  <worldbody>
    <site name="top" pos="0 0 3"/>
    <body name="tower" pos="0 0 1"><joint name="slew" axis="0 0 1" armature="2" damping="0.5"/>
      <geom type="cylinder" size="0.2 1"/>
      <body name="boom" pos="0.2 0 1"><joint name="luff" axis="0 -1 0" damping="2" armature="1"/>
        <geom type="box" size="1 0.05 0.05" pos="1 0 0"/>
        <site name="head" pos="2 0 0.05"/><site name="mid" pos="1 0 0.1"/>
        <body name="trolley" pos="0.5 0 -0.1"><joint name="travel" type="slide" axis="1 0 0" damping="3" stiffness="2"/>
          <geom type="box" size="0.1 0.1 0.05"/><site name="hook" pos="0 0 -0.05"/>
          <body name="load" pos="0 0 -0.8"><joint name="sx" axis="1 0 0" pos="0 0 0.8"/>
            <joint name="sy" axis="0 1 0" pos="0 0 0.8"/><geom type="sphere" size="0.2"/>
            <site name="eye" pos="0 0 0.2"/>
          </body>
        </body>
      </body>
    </body>
  </worldbody>
  <tendon>
    <spatial name="luffing" stiffness="500" damping="20" springlength="2.0"><site site="top"/><site site="mid"/>
      <site site="head"/></spatial>
    <spatial name="guy" stiffness="30" damping="1" springlength="0.1 0.3"><site site="hook"/><site site="eye"/>
    </spatial>
  </tendon>
  <actuator>
    <position name="hoist" tendon="luffing" kp="300" kv="30"/><motor joint="slew" gear="40"/>
    <velocity joint="travel" kv="20"/>
  </actuator>
</mujoco>"""

MACHINE = """<mujoco model="machine">
  <compiler angle="degree" coordinate="local"/>
  <option gravity="0.5 -0.3 -9"/>
  <default><default class="axis"><joint type="slide" armature="3" damping="5"/></default></default>
  <worldbody>
    <body name="bed"><geom type="box" size="1 1 0.1"/>
      <body name="saddle" pos="0 0 0.2" euler="10 0 5"><joint name="X" class="axis" axis="1 0 0.1"/>
        <geom type="box" size="0.3 0.3 0.1"/>
        <body name="table" pos="0 0 0.1"><joint name="Y" class="axis" axis="0 1 0" ref="0.3"/>
          <joint name="A" axis="1 0 0" pos="0 0.1 0.05" ref="15" armature="0.4" stiffness="6" springref="25"/>
          <joint name="C" axis="0 0 1" armature="0.2"/><geom type="cylinder" size="0.2 0.05"/></body>
      </body>
      <body name="spindle" pos="0 0.2 1" xyaxes="1 0 0 0 0 1"><joint name="Z" class="axis" axis="0 1 0"/>
        <joint name="S" axis="0 1 0" armature="0.05"/><geom type="capsule" size="0.08 0.2" pos="0.02 0 0"/></body>
    </body>
  </worldbody>
  <actuator>
    <position joint="X" kp="800" kv="60"/><position joint="Y" kp="700" kv="50" gear="2"/><velocity joint="S" kv="0.4"/>
    <motor joint="A" gear="12"/><position joint="C" kp="30" dampratio="1"/>
  </actuator>
</mujoco>"""

MODELS = {
    "cartpole": CARTPOLE, "hopper": HOPPER, "walker": WALKER, "cheetah": CHEETAH, "swimmer": SWIMMER, "ant": ANT,
    "humanoid": HUMANOID, "arm": ARM, "hand": HAND, "quadruped": QUADRUPED, "gripper": GRIPPER, "balls": BALLS,
    "drone": DRONE, "crane": CRANE, "machine": MACHINE,
}  # fmt: skip
